"""Prompts that the operator declared common to all tenants: how much of a request's prompt is one of them."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence


class SharedPrompts:
    """
    Args:
        prompts: the declared prompts, as token ids.
    """

    def __init__(self, prompts: Iterable[Sequence[int]] = ()) -> None:
        self._prompts = sorted(list(ids) for ids in prompts)

    def common_with(self, ids: Sequence[int]) -> int:
        """The first so many of `ids` begin a declared prompt."""
        if not self._prompts:
            return 0
        ids = list(ids)
        # What has most in common with it stands beside its place in the order.
        at = bisect(self._prompts, ids)
        return max(_common(ids, declared) for declared in self._prompts[max(at - 1, 0) : at + 1])


def _common(a: list[int], b: list[int]) -> int:
    """How many leading items are equal, found by halves: slices compare far quicker than items."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
