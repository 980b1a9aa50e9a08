"""Jinja's filters within a budget."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import filters

from octavo.templating.budget import MAX_SIZE, TemplateLimitError
from octavo.templating.methods import check_search, take_replaced
from octavo.templating.operators import add, check_number

if TYPE_CHECKING:
    from octavo.templating.environment import TemplateEnvironment

Filter = Callable[..., Any]
_MAX_MARK = 16  # characters of tojson's indent and separators

# For web pages, and their regular expressions may take very long.
LEFT_OUT = ("urlize", "striptags", "wordwrap", "xmlattr", "filesizeformat", "pprint", "wordcount")
# What they return is new; all but the first two read the whole of what they are given.
_MAKERS = ("list", "reverse", "sort", "unique", "groupby", "dictsort", "min", "max", "string", "int", "title", "upper",
           "lower", "capitalize", "truncate", "urlencode", "escape", "e", "forceescape")  # fmt: skip


def bounded_filters(environment: TemplateEnvironment) -> dict[str, Filter]:
    """All filters that a template may use."""
    out: dict[str, Filter] = {k: v for k, v in environment.filters.items() if k not in LEFT_OUT}
    for name in _MAKERS:
        out[name] = _bounded(environment, out[name], reads=name not in _MAKERS[:2])

    @jinja2.pass_eval_context
    def join(eval_ctx: Any, value: Any, d: str = "", attribute: Any = None) -> str:
        if attribute is not None:
            value = map(filters.make_attrgetter(environment, attribute), value)
        items, between = list(value), environment.text(d)
        environment.budget.take(environment.budget.size(items) + len(items) * len(between))
        joined: str = filters.sync_do_join(eval_ctx, items, between)
        return joined

    @jinja2.pass_eval_context
    def replace(eval_ctx: Any, s: Any, old: Any, new: Any, count: int | None = None) -> str:
        s, old, new = (environment.text(part) for part in (s, old, new))
        take_replaced(environment.budget, s, old, new)
        return filters.do_replace(eval_ctx, s, old, new, count)

    def center(value: Any, width: int = 80) -> str:
        check_number(width, "a width in center")
        environment.budget.take(width)
        return filters.do_center(environment.text(value), width)

    def indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        check_number(width, "a width in indent")
        s = environment.text(s)
        step = width if isinstance(width, int) else len(width)
        environment.budget.take(len(s) + (len(s.splitlines()) + 1) * max(step, 0))
        return filters.do_indent(s, width, first, blank)

    def format(value: Any, *args: Any, **kwargs: Any) -> str:
        if args and kwargs:
            raise jinja2.exceptions.FilterArgumentError(
                "can't handle positional and keyword arguments at the same time"
            )
        return environment.call_binop(None, "%", environment.text(value), kwargs or args)  # type: ignore[no-any-return]

    def round(value: Any, precision: int = 0, method: Any = "common") -> Any:
        if isinstance(precision, int) and abs(precision) > 400:
            raise TemplateLimitError(f"used a precision of {precision:.6g} in round, at most 400 is possible")
        return filters.do_round(value, precision, method)

    def trim(value: Any, chars: str | None = None) -> str:
        if not isinstance(value, str):
            value = environment.text(value)
        if chars is not None:
            check_search(value, chars)
        text: str = value.strip(chars)
        return text

    def batch(value: Any, linecount: int, fill_with: Any = None) -> Any:
        check_number(linecount, "a count in batch")
        return filters.do_batch(value, linecount, fill_with)

    def sum(iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
        if attribute is not None:
            iterable = map(filters.make_attrgetter(environment, attribute), iterable)
        for item in iterable:
            start = add(environment.budget, start, item)
        return start

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON without Jinja's escapes for HTML."""
        if indent is None and separators is None:
            return environment.checked(json.dumps(value, ensure_ascii=ensure_ascii, sort_keys=sort_keys))
        marks = [indent if isinstance(indent, int) else len(indent or ""), *map(len, separators or ())]
        if max(marks) > _MAX_MARK:
            raise TemplateLimitError(
                f"used an indent or separator of {max(marks):.6g} in tojson, at most {_MAX_MARK} is possible"
            )
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        if indent is not None:
            return environment.concat(encoder.iterencode(value))
        return environment.checked(encoder.encode(value))

    own = (join, replace, center, indent, format, round, trim, batch, sum, tojson)
    return {**out, **{f.__name__: f for f in own}}


def _bounded(environment: TemplateEnvironment, function: Filter, reads: bool) -> Filter:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if reads:
            args = tuple(_data(environment, arg) for arg in args)
        result = function(*args, **kwargs)
        if isinstance(result, (list, tuple, dict)):
            environment.budget.add(result)
        else:
            environment.budget.check(result)
        return result

    return call


def _data(environment: TemplateEnvironment, value: Any) -> Any:
    if hasattr(value, "__next__"):
        value = list(value)
    if isinstance(value, (list, tuple, dict)) and environment.budget.size(value) > MAX_SIZE:
        raise TemplateLimitError(f"read a value of more than {MAX_SIZE} characters, which is the limit")
    return value
