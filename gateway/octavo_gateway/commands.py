"""The subcommands that the gateway adds to `octavo`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from octavo.cli.command import Command
from octavo_gateway.server.flags import add_flags

if TYPE_CHECKING:
    from octavo_gateway.server.served_engine import ServedEngine


def _serve(flags: argparse.Namespace) -> int:
    from dataclasses import replace

    from octavo.cli.model_flags import engine_args
    from octavo.cli.vllm_flags import check_vllm_flags
    from octavo_gateway.server.flags import api_settings, server_settings, set_up_logging, take_model
    from octavo_gateway.server.start import run_server

    take_model(flags)
    set_up_logging(flags.log_level)
    check_vllm_flags(flags)
    arguments = replace(engine_args(flags), seed=flags.seed)

    def load() -> ServedEngine:
        from octavo._engine import limit_heap, trim_heap

        from octavo_gateway.server.served_engine import ServedEngine

        limit_heap()
        engine = ServedEngine(arguments)
        trim_heap()  # of what loading needed
        return engine

    def explain(message: str) -> str:
        from octavo.cli.parser import Parser, in_flags

        parser = Parser()
        add_flags(parser)
        return in_flags(message, parser)

    return run_server(load, api_settings(flags), server_settings(flags), explain)


serve = Command("Serve a model over an OpenAI-compatible HTTP API.", add_flags, _serve)
