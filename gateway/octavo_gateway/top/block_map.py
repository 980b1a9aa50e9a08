"""A cache's blocks as lines of characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo_gateway.protocol.cache import CACHED, FREE

LEGEND = "· free  ░ cached  █ live  2-9 held that often  + more often"
_LEVELS = "▁▂▃▄▅▆▇█"
_MOST = 9


@dataclass(slots=True)
class Cell:
    """Some neighbouring blocks that share a character."""

    blocks: int = 0
    live: int = 0
    cached: int = 0
    holders: int = 0  # the most that one of them has

    def add(self, holders: int, blocks: int) -> None:
        self.blocks += blocks
        if holders == CACHED:
            self.cached += blocks
        elif holders > FREE:
            self.live += blocks
            self.holders = max(self.holders, holders)

    @property
    def character(self) -> str:
        """A number where a block is shared, else how much is live; cached and free where nothing is."""
        if self.holders > 1:
            return str(self.holders) if self.holders <= _MOST else "+"
        if self.live:
            return _LEVELS[-(-self.live * len(_LEVELS) // self.blocks) - 1]
        return "░" if self.cached else "·"


def cells(runs: Iterable[Sequence[int]], per_cell: int) -> list[Cell]:
    """One cell for each `per_cell` blocks; the last may have fewer."""
    out: list[Cell] = []
    for holders, count in runs:
        left = count
        while left:
            if not out or out[-1].blocks == per_cell:
                out.append(Cell())
            n = min(left, per_cell - out[-1].blocks)
            out[-1].add(holders, n)
            left -= n
    return out


def draw(runs: Sequence[Sequence[int]], width: int, height: int) -> tuple[list[str], int]:
    """At most `height` lines of `width` characters, and how many blocks a character stands for."""
    total = sum(count for _, count in runs)
    per_cell = max(1, -(-total // (width * height)))
    row = "".join(cell.character for cell in cells(runs, per_cell))
    return [row[i : i + width] for i in range(0, len(row), width)], per_cell
