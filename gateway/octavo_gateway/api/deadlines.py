"""How long a request may take: until its first token, and in all."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from octavo_gateway.api.caller import Caller
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.protocol.common import GenerationFields
from octavo_gateway.protocol.errors import deadline_exceeded, invalid

T = TypeVar("T")
MIN_SECONDS, MAX_SECONDS = 1e-3, 1e7


@dataclass(frozen=True)
class Deadlines:
    """Seconds from the request's arrival; infinity: none."""

    arrival: float = 0.0  # monotonic seconds
    first_token: float = math.inf
    whole: float = math.inf

    @classmethod
    def of(cls, request: GenerationFields, caller: Caller, settings: ApiSettings) -> Deadlines:
        """The server's, and the request's own where that is earlier. Raises ApiError where it is over already."""
        given = request.timeout
        if given is not None and not MIN_SECONDS <= given <= MAX_SECONDS:
            raise invalid(
                "timeout", f"timeout must be from {MIN_SECONDS:g} to {MAX_SECONDS:g} seconds, got {given:g}."
            )
        whole = min(settings.request_seconds or math.inf, given or math.inf)
        deadlines = cls(caller.arrival, min(settings.first_token_seconds or math.inf, whole), whole)
        if time.monotonic() - caller.arrival >= deadlines.first_token:
            raise deadline_exceeded(deadlines.first_token)
        return deadlines

    @classmethod
    def of_text(cls, caller: Caller, settings: ApiSettings) -> Deadlines:
        """The server's, of a request that the engine has no part in."""
        whole = settings.request_seconds or math.inf
        return cls(caller.arrival, whole, whole)

    async def kept(self, work: Awaitable[T]) -> T:
        """The result of work that comes before the first token; a 504 when it is not there in time."""
        if self.first_token == math.inf:
            return await work
        left = self.arrival + self.first_token - time.monotonic()
        try:
            return await asyncio.wait_for(work, max(0.0, left))
        except asyncio.TimeoutError:
            raise deadline_exceeded(self.first_token) from None

    def arm(self, first_token: Callable[[], None], whole: Callable[[], None]) -> list[asyncio.TimerHandle]:
        """Timers that call these when the time is over."""
        due = [(self.whole, whole)] if self.whole < math.inf else []
        if self.first_token < self.whole:
            due.append((self.first_token, first_token))
        if not due:
            return []
        loop, now = asyncio.get_running_loop(), time.monotonic()
        return [loop.call_later(self.arrival + seconds - now, call) for seconds, call in due]
