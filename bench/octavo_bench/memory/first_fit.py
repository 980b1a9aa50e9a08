"""A first-fit allocator of contiguous ranges, as servers had before the cache was paged."""

from __future__ import annotations

from bisect import bisect_left


class FirstFit:
    """Hands out ranges of ``size`` slots, each at the lowest address where it fits; neighbouring holes are one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._holes: list[tuple[int, int]] = [(0, size)]  # (start, length), by start
        self._taken: dict[int, int] = {}  # start -> length

    @property
    def largest_hole(self) -> int:
        return max((length for _, length in self._holes), default=0)

    def allocate(self, length: int) -> int | None:
        """The start of a new range, or None where no hole is large enough."""
        for i, (start, hole) in enumerate(self._holes):
            if hole < length:
                continue
            if hole == length:
                del self._holes[i]
            else:
                self._holes[i] = (start + length, hole - length)
            self._taken[start] = length
            self.free -= length
            return start
        return None

    def release(self, start: int) -> None:
        """Gives a range back."""
        length = self._taken.pop(start)
        self.free += length
        at = bisect_left(self._holes, (start, 0))
        if at < len(self._holes) and self._holes[at][0] == start + length:
            length += self._holes.pop(at)[1]
        if at > 0 and sum(self._holes[at - 1]) == start:
            at -= 1
            start, before = self._holes.pop(at)
            length += before
        self._holes.insert(at, (start, length))
