"""The operators of a template, with a look at their operands first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from octavo.templating.budget import MAX_BITS, MAX_NUMBER, Budget, TemplateLimitError

_WIDTH = 9999  # of a field in a format
_TOO_WIDE = re.compile(r"\d{5}|%[^%a-zA-Z]*\*")
_WIDE = re.compile(r"%[^%a-zA-Z]*\d")


def check_number(value: Any, what: str) -> None:
    """Refuse a width, count or precision that makes much of little."""
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise TemplateLimitError(f"used {what} of {value:.6g}, at most {MAX_NUMBER} is possible")


def check_format(pattern: str) -> None:
    """Refuse a format with a wide field."""
    if _TOO_WIDE.search(pattern):
        raise TemplateLimitError(f"used a format with a field wider than {_WIDTH}, which is the limit")


def check_integer(bits: int) -> None:
    if bits > MAX_BITS:
        raise TemplateLimitError(f"made an integer of {bits:.6g} bits, at most {MAX_BITS} are possible")


def add(budget: Budget, left: Any, right: Any) -> Any:
    if isinstance(left, (str, bytes)) and isinstance(right, (str, bytes)):
        budget.take(len(left) + len(right))
        return left + right  # type: ignore[operator]
    result = left + right
    if isinstance(result, (list, tuple)):
        budget.add(result)
    return result


def multiply(budget: Budget, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        check_integer(left.bit_length() + right.bit_length())
        return left * right
    for values, times in ((left, right), (right, left)):
        if isinstance(values, (str, bytes, list, tuple)) and isinstance(times, int):
            one = len(values) if isinstance(values, (str, bytes)) else budget.size(values)
            budget.take(one * max(times, 0))
    result = left * right
    if isinstance(result, (list, tuple)):
        budget.add(result)
    return result


def power(budget: Budget, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and right > 0:
        check_integer(left.bit_length() * right)
    return left**right


def remainder(budget: Budget, left: Any, right: Any) -> Any:
    """The rest of a division, or a format: each of its fields may write all that is on the right."""
    if isinstance(left, (str, bytes)):
        pattern = left if isinstance(left, str) else left.decode("latin-1")
        check_format(pattern)
        field = budget.size(right) + (_WIDTH if _WIDE.search(pattern) else 0)
        budget.take(len(left) + pattern.count("%") * field)
    return left % right


# But +, which has a shorter way.
OPERATORS: dict[str, Callable[[Budget, Any, Any], Any]] = {"*": multiply, "**": power, "%": remainder}
