"""Who sends a request, and when it came."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    arrival: float  # monotonic seconds
    tenant: str | None = None  # whose API key it has; None: the server needs no keys
