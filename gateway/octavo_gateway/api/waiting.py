"""What waits for its first token, counted in tokens of prompts."""

from __future__ import annotations

from octavo_gateway.protocol.errors import too_many_tokens


class WaitingTokens:
    """
    Args:
        limit: prompt tokens that may wait; 0: no limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.tokens = 0

    def check(self, tokens: int) -> None:
        """429 where so many more are too many. Beside an empty queue nothing is: it could never be sent."""
        if self._limit and self.tokens and self.tokens + tokens > self._limit:
            raise too_many_tokens(self._limit)

    def add(self, tokens: int) -> None:
        self.tokens += tokens

    def remove(self, tokens: int) -> None:
        self.tokens -= tokens
