"""One accepted request: its deltas in order, its token counts, and its end, whichever way it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from octavo.errors import OctavoError
from octavo_gateway.api.deadlines import Deadlines
from octavo_gateway.api.engine import Delta, TokenStream
from octavo_gateway.api.metrics import RequestObserver
from octavo_gateway.api.waiting import WaitingTokens
from octavo_gateway.protocol.common import Usage, usage_of
from octavo_gateway.protocol.errors import ApiError, deadline_exceeded, from_engine, internal_error


class Generation:
    """Follows a request until each of its `choices` has finished, or until `close`."""

    def __init__(
        self,
        stream: TokenStream,
        observer: RequestObserver,
        prompt_tokens: int,
        choices: int,
        waiting: WaitingTokens,
        deadlines: Deadlines,
    ) -> None:
        self.stream = stream
        self._observer = observer
        self.choices = choices
        self._unfinished = choices
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        self._cached_tokens = 0
        self.reasoning_tokens: int | None = None  # counted by whoever reads the text; None: not at all
        self.finishes: list[str] = []  # how its choices have ended, in that order
        self._waiting: WaitingTokens | None = waiting  # until the first delta
        waiting.add(prompt_tokens)
        self._late: ApiError | None = None  # what a request is told that has no token in time
        self._deadlines = deadlines
        self._timers = deadlines.arm(self._first_token_is_due, self._whole_is_due)

    async def batches(self) -> AsyncIterator[Sequence[Delta]]:
        """What waits, at once each time. A delta with an error raises ApiError and ends the request."""
        while self._unfinished > 0:
            try:
                deltas = await self.stream.next()
            except OctavoError as e:  # the engine has been shut down
                raise from_engine(e.code, e.param, str(e)) from None
            for i, delta in enumerate(deltas):
                error = self._count(delta)
                if error is not None:
                    if i:
                        yield deltas[:i]
                    raise error
            yield deltas

    def _count(self, delta: Delta) -> ApiError | None:
        if self._unfinished <= 0:  # closed while its last deltas were on their way
            return None
        self._no_longer_waits()
        tokens = len(delta.token_ids)
        if not self._completion_tokens:
            self._cached_tokens = delta.cached_tokens
        self._completion_tokens += tokens
        self._observer.on_delta(delta, tokens)
        finish = delta.finish
        if finish is None:
            return None
        self._unfinished -= 1
        self.finishes.append(finish)
        self._cached_tokens = delta.cached_tokens
        error = None
        if finish == "error":
            error = internal_error() if delta.error is None else from_engine(*delta.error)
        elif finish == "abort" and not self._completion_tokens:
            error = self._late
        if error is not None:
            self._unfinished = 0
        if not self._unfinished:
            self._observer.on_finish(delta, finish)
            self._stop_timers()
        return error

    def _no_longer_waits(self) -> None:
        if self._waiting is not None:
            self._waiting.remove(self._prompt_tokens)
            self._waiting = None

    def _first_token_is_due(self) -> None:
        if not self._completion_tokens:
            self._late = deadline_exceeded(self._deadlines.first_token)
            self.stream.cancel()

    def _whole_is_due(self) -> None:
        self._late = deadline_exceeded(self._deadlines.whole)
        self.stream.cancel()

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()

    @property
    def backlog(self) -> int:
        """Deltas that wait because the reader is slow."""
        return self.stream.backlog

    @property
    def request(self) -> int:
        """The engine's number for it."""
        return self.stream.id

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were in the cache."""
        return self._cached_tokens

    @property
    def usage(self) -> Usage:
        """Complete once the last choice has finished."""
        return usage_of(
            self._prompt_tokens, self._completion_tokens, self._cached_tokens, self.reasoning_tokens
        )

    def cancel(self) -> None:
        """End the request early; what it has made so far still comes, with finish "abort"."""
        self.stream.cancel()

    def close(self) -> None:
        """Nobody reads on: free what the request holds, if it has not ended."""
        self._no_longer_waits()
        self._stop_timers()
        if self._unfinished > 0:
            self._unfinished = 0
            self.finishes.append("abort")
            self._observer.on_abandon()
            self.stream.cancel()
