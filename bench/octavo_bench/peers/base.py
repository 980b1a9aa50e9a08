"""What a peer must do to take part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from octavo_bench.client import Load, Record


@dataclass(frozen=True, slots=True)
class Started:
    """How a peer came up: seconds from process start to its first generated token, and its resident memory."""

    seconds: float
    resident_mb: float


class Peer(Protocol):
    """A server or library under measurement. ``start`` and ``stop`` bracket its runs; it never outlives them."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str:
        """A "server" is driven over HTTP by a client on the same CPUs, a "library" runs in a process of its own."""

    def missing(self) -> str | None:
        """Why it cannot take part on this machine, or None."""

    async def start(self) -> Started: ...

    async def run(self, load: Load) -> list[Record]: ...

    def resident_mb(self) -> float: ...

    async def stop(self) -> None: ...
