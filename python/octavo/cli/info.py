"""``octavo info``: what a model is, how much of it fits, and on which devices it can run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from octavo import _engine
from octavo.cli.command import Command
from octavo.cli.model_flags import add_model_flags, engine_args


def configure(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--no-load", action="store_true", help="read the files only; leaves out what packing would tell"
    )


def run(flags: argparse.Namespace) -> int:
    from octavo.loading import load
    from octavo.models import hub
    from octavo.models.checkpoint import describe, open_checkpoint

    args = engine_args(flags)
    facts: dict[str, Any]
    if flags.no_load:
        path = hub.resolve(args.model, cache_dir=args.cache_dir, revision=args.revision, offline=args.offline)
        facts = {"path": str(path), **asdict(describe(open_checkpoint(path), args.kv_dtype))}
    else:
        model = load(args)
        engine = model.engine.info()
        facts = {"path": str(model.path), **asdict(model.info), **engine}
        facts["cache_tokens"] = engine["num_blocks"] * engine["block_size"]
        facts["load_seconds"] = round(model.load_seconds, 3)
        model.shutdown()
    facts["backends"] = _engine.backends()
    print(json.dumps(facts, indent=2) if flags.json else "\n".join(_lines(facts)))
    return 0


def _lines(facts: dict[str, Any]) -> list[str]:
    formats = ", ".join(f"{name} x {count}" for name, count in facts["formats"].items())
    heads = f"{facts['heads']}/{facts['kv_heads']} heads of {facts['head_dim']}"
    shown: dict[str, str] = {
        "model": facts["path"],
        "architecture": facts["architecture"],
        "format": f"{facts['container']}: {formats}",
        "parameters": f"{facts['parameters']:,}",
        "shape": f"{facts['layers']} layers, {facts['hidden']} wide, {heads}, vocabulary {facts['vocab']:,}",
        "longest context": f"{facts['max_positions']:,} tokens",
        "attention": ", ".join(
            f"{layers} layers see {'all tokens' if window == 0 else f'the last {window:,}'}"
            for window, layers in facts["windows"].items()
        ),
        "bytes in file": f"{facts['file_bytes']:,}",
        "cache per token": f"{facts['kv_bytes_per_token']:,} bytes",
    }
    if "weight_bytes" in facts:
        packed, tokens = facts["weight_bytes"], facts["cache_tokens"]
        blocks = f"{facts['num_blocks']:,} blocks of {facts['block_size']}"
        size = f"{facts['kv_bytes']:,} bytes of {facts['kv_dtype']}"
        shown |= {
            "bytes packed": f"{packed:,} ({packed / facts['file_bytes']:.2f} x the file's tensors)",
            "cache": f"{tokens:,} tokens fit ({blocks}, {size})",
            "backend": f"{facts['backend']} ({facts['isa']}), {facts['threads']} threads",
            "loaded in": f"{facts['load_seconds']} s",
        }
    for backend, report in facts["backends"].items():
        shown[backend] = report["why_not"] or ", ".join(map(_device_line, report["devices"]))
    return [f"{name:<16} {value}" for name, value in shown.items()]


def _device_line(device: dict[str, Any]) -> str:
    free, total = (device[key] / 2**30 for key in ("free_bytes", "memory_bytes"))
    return f"{device['name']} ({device['isa']}, {free:.1f} of {total:.1f} GiB free)"


command = Command(
    "Print what a model is, how many tokens of cache fit, and which devices there are.", configure, run
)
