"""Checks of values that come from outside: each error names the field, the value and the limit."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

from octavo.errors import InvalidArgumentError


def invalid(name: str, value: Any, must: str) -> InvalidArgumentError:
    """The error for ``name=value`` where ``must`` says what was expected."""
    shown = repr(value)
    if len(shown) > 200:
        shown = shown[:197] + "..."
    return InvalidArgumentError(f"{name} must be {must}, got {shown}", param=name)


def number(name: str, value: Any, low: float, high: float) -> float:
    """A finite number of Python or NumPy within [low, high]; bool is not a number here."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise invalid(name, value, f"a number from {low:g} to {high:g}")
    try:
        as_float = float(value)
    except OverflowError:
        as_float = math.inf
    if not math.isfinite(as_float) or not low <= as_float <= high:
        raise invalid(name, value, f"a number from {low:g} to {high:g}")
    return as_float


def integer(name: str, value: Any, low: int, high: int) -> int:
    """What is an index (an int, or one of NumPy or torch) within [low, high]; bool is none here."""
    as_int = _index(value)
    if as_int is None or not low <= as_int <= high:
        raise invalid(name, value, f"an integer from {low} to {high}")
    return as_int


def _index(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid(name, value, "true or false")
    return value


def token_ids(name: str, value: Any, vocab_size: int | None = None) -> list[int]:
    """A list, array or tensor of token ids as a list, within the vocabulary where that is known."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise invalid(name, value, "a list of token ids")
    ids: list[int] = []
    limit = 2**31 if vocab_size is None else vocab_size
    for given in value:
        token = given if type(given) is int else _index(given)
        if token is None:
            raise invalid(name, given, "a list of integers")
        ids.append(token)
        if not 0 <= token < limit:
            raise InvalidArgumentError(
                f"{name} holds token id {token}, which is out of vocabulary: ids run from 0 to {limit - 1}",
                param=name,
            )
    return ids


def strings(name: str, value: Any) -> list[str]:
    """A string or a list of strings, none empty and all valid Unicode, as a list; None is the empty list."""
    if value is None:
        return []
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise invalid(name, value, "a string or a list of strings")
    for item in items:
        if not item:
            raise invalid(name, item, "a list of strings that are not empty")
        unicode_text(name, item)
    return list(items)


def unicode_text(name: str, text: str) -> str:
    """Text without lone surrogates, which no tokenizer can take."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name} is not valid Unicode: lone surrogate {text[error.start]!r} at character {error.start}",
            param=name,
        ) from error
    return text
