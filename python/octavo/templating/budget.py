"""How much one rendering may make, told before it is made."""

from __future__ import annotations

import contextlib
import json
from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

MAX_SIZE = 2**24  # of one value: characters, and some for each entry of a list or map
MAX_MADE = 2**29  # of all values together
SMALL = 2**16  # what is not counted: only lists keep many of them, and those are
MAX_DEPTH = 200  # of lists in lists
MAX_BITS = 2**16  # of an integer
MAX_NUMBER = 10**6  # of a width or count
MAX_SEARCH = 2**30  # characters compared where a search takes the product of two lengths
_ENTRY = 16
_json = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


class TemplateLimitError(Exception):
    """The template went beyond a limit; the message says which."""


class Budget:
    """What a rendering has made.

    Whatever a template builds is measured when it is built, so that no operation on it takes long: the interpreter
    cannot be interrupted within one. A list that holds another twice counts it twice.
    """

    __slots__ = ("_known", "_made")

    def __init__(self) -> None:
        self._made = 0
        self._known: dict[int, tuple[Any, int, int]] = {}  # by id: a container, its size and depth

    def take(self, size: int) -> None:
        """Allow a value of this size, or raise."""
        if size > MAX_SIZE:
            raise TemplateLimitError(
                f"made a value of {size} characters at once, at most {MAX_SIZE} are possible"
            )
        self._made += size
        if self._made > MAX_MADE:
            raise TemplateLimitError(f"made more than {MAX_MADE} characters in all, which is the limit")

    def add(self, value: Any) -> None:
        """Allow a container that was built of values that were allowed."""
        size, depth = self._walk(value)
        if depth > MAX_DEPTH:
            raise TemplateLimitError(f"nested lists or maps more than {MAX_DEPTH} deep, which is the limit")
        self.take(size)
        self._known[id(value)] = (value, size, depth)

    def check(self, value: Any) -> None:
        """Refuse a value that came out too large."""
        if isinstance(value, (str, bytes)):
            if len(value) > SMALL:
                self.take(len(value))
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise TemplateLimitError(
                f"made an integer of {value.bit_length()} bits, at most {MAX_BITS} are possible"
            )

    def size(self, value: Any) -> int:
        """Characters of a value as text, about; what holds no data counts as one entry."""
        return self._measure(value)[0]

    def _measure(self, value: Any) -> tuple[int, int]:
        if isinstance(value, (str, bytes)):
            return _ENTRY + len(value), 0
        if isinstance(value, int):
            return _ENTRY + value.bit_length() // 3, 0
        known = self._known.get(id(value))
        if known is not None and known[0] is value:
            return known[1:]
        if type(value) is dict:
            # Those that a template builds are known: it came in, so it is a tree, or has few entries.
            with contextlib.suppress(
                TypeError, ValueError, RecursionError
            ):  # it holds something else than data
                return len(_json(value)), 1
        return self._walk(value)

    def _walk(self, value: Any) -> tuple[int, int]:
        if isinstance(value, dict):
            value = value.items()
        if isinstance(value, ItemsView):
            parts: Any = (part for item in value for part in item)
        elif isinstance(value, (list, tuple, KeysView, ValuesView)):
            parts = value
        else:
            return _ENTRY, 0
        size = depth = 0
        for part in parts:
            more, below = self._measure(part)
            size += _ENTRY + more
            depth = max(depth, below)
            if size > MAX_SIZE:
                break
        return size, depth + 1
