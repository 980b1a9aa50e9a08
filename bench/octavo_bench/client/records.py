"""What is sent and what came back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Shot:
    """One request of a load.

    Attributes:
        due: seconds after the start of the run at which it is to be sent; a later turn is due when the turn before
            it has been answered, ``think`` seconds later.
        prompt: text, or token ids (exact lengths whatever the tokenizer does with text).
        max_tokens: output length asked for.
        extra: further fields of the request body.
        previous: index of the shot whose prompt and answer stand before this prompt in the conversation.
        think: seconds between the previous answer and this request.
        cancel_after: the client hangs up after so many chunks.
        read_rate: chunks per second that the client is willing to read.
    """

    due: float
    prompt: str | Sequence[int]
    max_tokens: int
    extra: dict[str, Any] = field(default_factory=dict)
    previous: int | None = None
    think: float = 0.0
    cancel_after: int | None = None
    read_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Requests and how many of them may be under way at once (None: as many as are due)."""

    shots: Sequence[Shot]
    concurrency: int | None = None


@dataclass(slots=True)
class Record:
    """What happened to one shot; times are seconds on the run's clock, None where it did not come so far.

    Attributes:
        due: when it was to be sent.
        released: when the client's timer let it go: later than ``due`` where the client cannot keep up.
        dispatched: when it was sent: later than ``released`` where the limit on requests under way held it back.
        chunks: when each chunk with generated text arrived.
        finished: when the stream ended as it should.
        ended: when it ended, however it did.
        cancelled: the client hung up, as the load asked it to.
        slow_reader: the load asked the client to read slowly, so its times are the client's own.
        failure: kind of the failure (``connect``, ``disconnected``, ``timeout``, ``HTTP 429``, ...).
        error: what the failure said.
    """

    due: float
    released: float | None = None
    dispatched: float | None = None
    chunks: array[float] = field(default_factory=lambda: array("d"))
    finished: float | None = None
    ended: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    cancelled: bool = False
    slow_reader: bool = False
    failure: str | None = None
    error: str | None = None

    def fail(self, kind: str, detail: str = "") -> None:
        """Marks it as failed; the first cause stays."""
        if self.failure is None:
            self.failure = kind
            self.error = f"{kind}: {detail}"[:300] if detail else kind

    @property
    def ok(self) -> bool:
        return self.failure is None and self.finished is not None

    @property
    def measured(self) -> bool:
        """Whether its times say something about the server."""
        return self.ok and not self.slow_reader

    @property
    def tokens(self) -> int:
        """Output tokens by the server's count; the number of chunks where it sent none."""
        return self.output_tokens if self.output_tokens is not None else len(self.chunks)

    @property
    def ttft(self) -> float | None:
        """Time to first token of the service: from dispatch to the first chunk."""
        return self.chunks[0] - self.dispatched if self.chunks and self.dispatched is not None else None

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
    def dispatch_delay(self) -> float | None:
        """How late the client's timer was: its own fault, not the server's."""
        return None if self.released is None else self.released - self.due

    @property
    def client_queue(self) -> float | None:
        """How long the limit on requests under way held it back."""
        if self.dispatched is None or self.released is None:
            return None
        return self.dispatched - self.released

    @property
    def tpot(self) -> float | None:
        """Mean time per output token after the first."""
        if not self.chunks or self.tokens < 2:
            return None
        return (self.chunks[-1] - self.chunks[0]) / (self.tokens - 1)
