"""``octavo pull``: bring a model to this machine."""

from __future__ import annotations

import argparse

from octavo.cli.command import Command
from octavo.cli.model_flags import add_source_flags


def run(flags: argparse.Namespace) -> int:
    from octavo.models import hub

    path = hub.resolve(
        flags.model, cache_dir=flags.cache_dir, revision=flags.revision, offline=flags.offline, verify=True
    )
    print(path)
    return 0


command = Command(
    "Download a model, or check the one that is here, and print where it is.", add_source_flags, run
)
