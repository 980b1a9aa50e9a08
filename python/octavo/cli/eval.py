"""``octavo eval``: how well a model does on text."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from octavo.cli.command import Command
from octavo.cli.model_flags import add_model_flags, engine_args
from octavo.cli.text_file import read_text
from octavo.engine_args import EngineArgs
from octavo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from octavo.loading import LoadedModel

_WINDOW = 1024


def configure(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="MEASURE")
    text = "Perplexity on a text, with its standard error; beside another model's with --compare"
    perplexity = kinds.add_parser("perplexity", help=text, description=text)
    add_model_flags(perplexity)
    perplexity.add_argument(
        "--text",
        action="append",
        metavar="FILE",
        help="a UTF-8 file; may be repeated; a built-in text without it",
    )
    perplexity.add_argument(
        "--max-tokens", type=int, metavar="N", help="use only this many tokens of the text"
    )
    perplexity.add_argument(
        "--window",
        type=int,
        metavar="N",
        help=f"tokens the model reads at once; {_WINDOW} where its context allows",
    )
    perplexity.add_argument(
        "--stride",
        type=int,
        metavar="N",
        help="tokens from one window's start to the next one's; half a window",
    )
    perplexity.add_argument(
        "--compare",
        metavar="MODEL",
        help="a second model on the same tokens, its weights and cache stored as by default; gives the ratio",
    )
    perplexity.add_argument("--json", action="store_true", help="print JSON")


def run(flags: argparse.Namespace) -> int:
    texts = _texts(flags.text)
    args = engine_args(flags)
    result = _measure(args, texts, flags)
    report = result.report(args)
    if flags.compare is not None:
        plain = EngineArgs()
        other_args = replace(
            args,
            model=flags.compare,
            revision=None,
            quantization=plain.quantization,
            kv_cache_dtype=plain.kv_cache_dtype,
        )
        other = _measure(other_args, texts, flags, result)
        report["compare"] = other.report(other_args) | {"ratio": _ratio(result, other)}
    print(json.dumps(report, indent=2) if flags.json else "\n".join(_lines(report)))
    return 0


@dataclass(frozen=True)
class _Result:
    model: str
    ids: list[list[int]]
    losses: list[float]
    window: int
    stride: int
    seconds: float

    def report(self, args: EngineArgs) -> dict[str, Any]:
        from octavo.evaluation.perplexity import estimate

        found = estimate(self.losses)
        return {
            "model": self.model,
            "quantization": args.quantization,
            "kv_cache_dtype": args.kv_dtype,
            "tokens": sum(map(len, self.ids)),
            "scored": len(self.losses),
            "window": self.window,
            "stride": self.stride,
            "perplexity": found.value,
            "standard_error": found.error,
            "nats_per_token": found.mean,
            "nats_per_token_error": found.mean_error,
            "seconds": round(self.seconds, 3),
        }


def _measure(
    args: EngineArgs, texts: list[str], flags: argparse.Namespace, first: _Result | None = None
) -> _Result:
    from octavo.evaluation import perplexity
    from octavo.loading import load

    model = load(args)
    try:
        start = time.monotonic()
        ids = perplexity.encode(model, texts, flags.max_tokens)
        if first is not None and ids != first.ids:
            raise InvalidArgumentError(
                f"{model.name} reads the text as other tokens than {first.model}: perplexities cannot be compared",
                param="compare",
            )
        window, stride = (first.window, first.stride) if first else _window(model, flags)
        found = perplexity.losses(model, ids, window, stride)
        return _Result(model.name, ids, found, window, stride, time.monotonic() - start)
    finally:
        model.shutdown()


def _window(model: LoadedModel, flags: argparse.Namespace) -> tuple[int, int]:
    window = min(_WINDOW, model.max_model_len - 1) if flags.window is None else flags.window
    return window, max(1, window // 2) if flags.stride is None else flags.stride


def _ratio(result: _Result, other: _Result) -> dict[str, float]:
    from octavo.evaluation.perplexity import estimate

    found = estimate([a - b for a, b in zip(result.losses, other.losses, strict=True)])
    return {"value": found.value, "standard_error": found.error}


def _texts(paths: list[str] | None) -> list[str]:
    from octavo.evaluation.perplexity import sample_text

    if paths is None:
        return [sample_text()]
    return [read_text("--text", path) for path in paths]


def _lines(report: dict[str, Any]) -> list[str]:
    lines = [
        f"text             {report['tokens']:,} tokens, windows of {report['window']}, stride {report['stride']}",
        *_model_lines(report),
    ]
    if (other := report.get("compare")) is not None:
        ratio = other["ratio"]
        lines += [
            *_model_lines(other),
            f"ratio            {ratio['value']:.4f} ± {ratio['standard_error']:.4f}",
        ]
    return lines


def _model_lines(report: dict[str, Any]) -> list[str]:
    stored = f"weights {report['quantization'] or 'as in the file'}, cache {report['kv_cache_dtype']}"
    return [
        f"model            {report['model']} ({stored})",
        f"perplexity       {report['perplexity']:.4f} ± {report['standard_error']:.4f} "
        f"over {report['scored']:,} tokens, {report['seconds']:.1f} s",
    ]


command = Command("Measure how well a model does on text.", configure, run)
