"""A stream whose further events differ in their text alone: the engine can write them by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo_gateway.api.generation import Generation

PLACE = "\0"  # stands for the text in an event
_PLACE = b"\\u0000"


@dataclass(frozen=True, slots=True)
class PlainText:
    """What stands before and behind the text of a generation's one choice in each event."""

    generation: Generation
    head: bytes
    tail: bytes

    @classmethod
    def of_event(cls, generation: Generation, event: bytes) -> PlainText | None:
        """`event` has PLACE for its text; None where another part of it holds that, too."""
        head, place, tail = event.partition(_PLACE)
        return cls(generation, head, tail) if place and _PLACE not in tail else None

    def send_directly(self, fd: int, write_rest: Callable[[bytes], None]) -> bool:
        """See TokenStream.send_directly."""
        return self.generation.stream.send_directly(fd, self.head, self.tail, write_rest)

    def take_back(self) -> float | None:
        """See TokenStream.take_back."""
        return self.generation.stream.take_back()
