"""How many files the process may open: each connection is one, and another while the engine writes to it."""

from __future__ import annotations

import logging
import resource

_log = logging.getLogger("octavo.gateway")
_OTHER_FILES = 256  # what the process opens beside its connections


def raise_file_limit(connections: int) -> None:
    """Raise the soft limit as far as so many connections need and the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        _log.warning("--max-connections %d needs %d open files; %d are allowed", connections, wanted, allowed)
