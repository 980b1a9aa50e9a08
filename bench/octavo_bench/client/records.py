"""What is sent and what came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Shot:
    """One request of a load.

    Attributes:
        due: seconds after the start of the run at which it is to be sent.
        prompt: text, or token ids (exact lengths whatever the tokenizer does with text).
        max_tokens: output length asked for.
        extra: further fields of the request body.
    """

    due: float
    prompt: str | Sequence[int]
    max_tokens: int
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests and how many of them may be under way at once (None: as many as are due)."""

    shots: Sequence[Shot]
    concurrency: int | None = None


@dataclass(slots=True)
class Record:
    """What happened to one shot; times are seconds on the run's clock, None where it did not come so far."""

    due: float
    dispatched: float | None = None
    first_chunk: float | None = None
    chunks: list[float] = field(default_factory=list)
    finished: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and self.finished is not None

    @property
    def ttft(self) -> float | None:
        """Time to first token of the service: from dispatch to the first chunk."""
        if self.first_chunk is None or self.dispatched is None:
            return None
        return self.first_chunk - self.dispatched

    @property
    def latency(self) -> float | None:
        """Whole time of the service: from dispatch to the end of the stream."""
        if self.finished is None or self.dispatched is None:
            return None
        return self.finished - self.dispatched

    @property
    def scheduled_latency(self) -> float | None:
        """What the user felt: from the moment the request was due, the client's own queue included."""
        return None if self.finished is None else self.finished - self.due

    @property
    def tpot(self) -> float | None:
        """Mean time per output token after the first."""
        if self.first_chunk is None or not self.chunks or not self.output_tokens or self.output_tokens < 2:
            return None
        return (self.chunks[-1] - self.first_chunk) / (self.output_tokens - 1)
