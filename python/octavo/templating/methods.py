"""Methods of strings, numbers and maps that may make much of little, with a look at their arguments first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.templating.budget import MAX_SEARCH, Budget, TemplateLimitError
from octavo.templating.operators import check_number

_SEARCHES = {"rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip"}
_PIECE = 64  # bytes of a short string
_WIDTHS = {"center", "ljust", "rjust", "zfill", "to_bytes"}


def check_search(text: Any, other: Any) -> None:
    """Refuse a search whose time is the product of two lengths."""
    if isinstance(other, (str, bytes)) and len(text) * len(other) > MAX_SEARCH:
        raise TemplateLimitError(
            f"searched a text of {len(text)} characters for {len(other)}, "
            f"their product may be {MAX_SEARCH} at most"
        )


def call_method(budget: Budget, owner: Any, name: str, method: Any, args: Any, kwargs: Any) -> Any:
    """``owner.name(*args, **kwargs)`` within the budget."""
    given = [*args, *kwargs.values()]
    if isinstance(owner, (str, bytes)):
        if name in _SEARCHES:
            for other in given:
                check_search(owner, other)
        elif name == "replace" and len(given) >= 2:
            take_replaced(budget, owner, *given[:2])
        elif name == "translate" and given:
            _take_translated(budget, owner, given[0])
        elif name == "join" and given:
            args = (list(given[0]),)
            kwargs = {}
            budget.take(budget.size(args[0]) + len(args[0]) * len(owner))
        elif name == "expandtabs":
            tab = "\t" if isinstance(owner, str) else b"\t"
            width = given[0] if given and isinstance(given[0], int) else 8
            budget.take(len(owner) + owner.count(tab) * max(width, 0))  # type: ignore[arg-type]
    if name in _WIDTHS:
        for number in given:
            check_number(number, f"a width in {name}")
    result = method(*args, **kwargs)
    if isinstance(result, list) and isinstance(owner, (str, bytes)):
        budget.take(_PIECE * len(result) + len(owner))
    elif isinstance(result, (list, tuple, dict)) and name in ("copy", "fromkeys", "dict"):
        budget.add(result)
    else:
        budget.check(result)
    return result


def take_replaced(budget: Budget, text: Any, old: Any, new: Any) -> None:
    """Allow ``text`` with every ``old`` written as ``new``."""
    if isinstance(old, type(text)) and isinstance(new, type(text)):
        budget.take(len(text) + text.count(old) * len(new))


def _take_translated(budget: Budget, text: Any, table: Any) -> None:
    values = (
        table.values() if isinstance(table, Mapping) else table if isinstance(table, (list, tuple)) else ()
    )
    budget.take(len(text) * max((len(value) for value in values if isinstance(value, str)), default=1))
