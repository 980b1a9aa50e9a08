"""The engine with a real model, driven by token ids as the Python package drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo import _engine
from octavo.models.checkpoint import open_checkpoint
from octavo.tokenizer import from_gguf

TEXT = (
    "An octavo is a book made of sheets that were folded three times, so that each sheet gives eight leaves, or "
    "sixteen pages. Printers liked the size: it fits a coat pocket, and the type can still be read. Quartos are "
    "larger and squarer, folios larger still. In 1501 Aldus Manutius began to print the classics in octavo, without "
    "the commentaries that used to surround them, and readers carried Virgil on horseback. The paper maker, the "
    "compositor and the binder each had to know how the sheet would be folded, because pages that follow one another "
    "in the book lie far apart, some of them upside down, on the sheet. "
)


def params(**values: Any) -> _engine.SamplingParams:
    """Greedy, no end token, unless told otherwise."""
    made = _engine.SamplingParams()
    made.temperature = 0.0
    for name, value in values.items():
        setattr(made, name, value)
    return made


@dataclass
class Result:
    """What one request gave."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    text: str = ""
    finish: str | None = None
    cached_tokens: int = 0
    times: list[float] = field(default_factory=list)  # of each delta's last token


class Served:
    """A started engine and one channel of it."""

    def __init__(self, path: Path, **options: Any) -> None:
        checkpoint = open_checkpoint(path)
        self.tokenizer = from_gguf(checkpoint.metadata)
        options = {"max_model_len": 2048, "num_blocks": 2048, "threads": 2} | options
        self.engine = _engine.Engine(checkpoint.config, checkpoint.weights, **options)
        self.engine.start(self.tokenizer.token_table(checkpoint.config.vocab))
        self.channel = self.engine.open_channel()
        self.results: dict[int, Result] = {}

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.shutdown()

    def prompt(self, tokens: int, start: int = 0) -> list[int]:
        """The first ``tokens`` token ids of the text, begun at its character ``start`` and repeated."""
        text = (TEXT[start:] + TEXT * (1 + tokens // 100))[: 16 * tokens + 64]
        ids = self.tokenizer.encode(text)[:tokens]
        assert len(ids) == tokens
        return ids

    def submit(self, prompt: Sequence[int], parameters: _engine.SamplingParams, **options: Any) -> int:
        request: int = self.engine.submit(list(prompt), parameters, self.channel, **options)
        self.results[request] = Result()
        return request

    def finish(self, requests: Iterable[int]) -> list[Result]:
        """Waits until all of them have ended; the results in their order."""
        requests = list(requests)
        self.drain_until(lambda: all(self.results[r].finish for r in requests))
        return [self.results.pop(r) for r in requests]

    def drain_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.channel.wait(20)
            for delta in self.channel.drain():
                self._take(delta)

    def _take(self, delta: _engine.Delta) -> None:
        result = self.results[delta.id]
        assert delta.error is None, delta.error
        result.ids += delta.token_ids
        result.text += delta.text
        result.logprobs += delta.logprobs or []
        result.finish = delta.finish or result.finish
        result.cached_tokens = delta.cached_tokens
        if delta.token_ids:
            result.times.append(delta.last_token)
