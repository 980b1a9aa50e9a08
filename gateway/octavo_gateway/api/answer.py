"""What the transport does with an answer under way, whichever route it is for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from octavo_gateway.api.generation import Generation
from octavo_gateway.api.plain_text import PlainText


class Answer(Protocol):
    """Read once, with `events` or with `whole`; whoever reads closes the generations."""

    @property
    def generations(self) -> Sequence[Generation]: ...
    @property
    def backlog(self) -> int:
        """Steps that wait because the reader is slow."""
        ...

    def plain_text(self) -> PlainText | None:
        """The stream's further events, where they differ in their text alone."""
        ...

    def events(self) -> AsyncIterator[bytes]: ...
    async def whole(self) -> bytes: ...
