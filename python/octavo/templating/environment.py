"""Jinja's immutable sandbox in which nothing can be made that is too large."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from markupsafe import escape

from octavo.templating.budget import SMALL, Budget
from octavo.templating.filters import bounded_filters
from octavo.templating.methods import call_method
from octavo.templating.operators import OPERATORS, add, check_format

_FEW = 16  # parts that may be joined before their length is known
_PIECES = 4096  # of a text, joined at a time


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's words for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 - Jinja reads the class attribute

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Code(CodeGenerator):
    """Python of a template that hands lists, maps and parts of a text to the environment."""

    def visit_Concat(self, node: nodes.Concat, frame: Any) -> None:
        escapes = frame.eval_ctx.volatile or frame.eval_ctx.autoescape
        self.write("environment.joined_escaped(context, (" if escapes else "environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Add(self, node: nodes.BinExpr, frame: Any) -> None:
        self.write("environment.plus(")
        self.visit(node.left, frame)
        self.write(", ")
        self.visit(node.right, frame)
        self.write(")")

    def _output_child_pre(self, node: nodes.Expr, frame: Any, finalize: Any) -> None:
        escapes = frame.eval_ctx.volatile or frame.eval_ctx.autoescape
        self.write("environment.escaped(context, " if escapes else "environment.text(")

    def visit_List(self, node: nodes.List, frame: Any) -> None:
        self._container(super().visit_List, node, node.items, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Any) -> None:
        items = node.items if node.ctx == "load" else []
        self._container(super().visit_Tuple, node, items, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Any) -> None:
        parts = [part for item in node.items for part in (item.key, item.value)]
        self._container(super().visit_Dict, node, parts, frame)

    def _container(self, visit: Callable[..., None], node: Any, parts: list[nodes.Expr], frame: Any) -> None:
        if all(isinstance(part, nodes.Const) for part in parts):
            visit(node, frame)
            return
        self.write("environment.made(")
        visit(node, frame)
        self.write(")")


class _Formatter(SandboxedFormatter):
    """``str.format`` within a budget."""

    _env: TemplateEnvironment

    def format_field(self, value: Any, format_spec: str) -> str:
        check_format(format_spec)
        text: str = super().format_field(
            value if isinstance(value, (str, int, float)) else self._env.text(value), format_spec
        )
        self._env.budget.check(text)
        return text


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """What Hugging Face's libraries offer to a chat template, with a budget for each rendering."""

    code_generator_class = _Code
    intercepted_binops = frozenset(OPERATORS)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self._local = threading.local()
        self.filters = bounded_filters(self)
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    @property
    def budget(self) -> Budget:
        """What the rendering in this thread may still make."""
        try:
            return self._local.budget  # type: ignore[no-any-return]
        except AttributeError:
            return Budget()  # constants, while the template is compiled

    def render(self, template: jinja2.Template, variables: dict[str, Any]) -> str:
        """The template's text, within a budget of its own."""
        self._local.budget = Budget()
        try:
            return template.render(variables)
        finally:
            del self._local.budget

    def text(self, value: Any) -> str:
        """A value as text; containers are measured first, since they may hold one part many times."""
        if isinstance(value, str):
            return value
        if not isinstance(value, jinja2.Undefined):
            self.budget.take(self.budget.size(value))
        return str(value)

    def escaped(self, context: Any, value: Any) -> str:
        """The same within ``{% autoescape %}``."""
        text = self.text(value)
        return escape(text) if context.eval_ctx.autoescape else text

    def checked(self, text: str) -> str:
        """A text that is new."""
        if len(text) > SMALL:
            self.budget.take(len(text))
        return text

    def made(self, value: Any) -> Any:
        """A list or map that the template writes."""
        self.budget.add(value)
        return value

    def joined(self, parts: tuple[Any, ...]) -> str:
        """``a ~ b``."""
        if len(parts) <= _FEW:
            try:
                return self.checked("".join(parts))
            except TypeError:  # not all are texts
                pass
        self._take_parts(parts)
        return str_join(parts)

    def joined_escaped(self, context: Any, parts: tuple[Any, ...]) -> str:
        """The same within ``{% autoescape %}``."""
        self._take_parts(parts)
        text: str = (markup_join if context.eval_ctx.autoescape else str_join)(parts)
        return text

    def _take_parts(self, parts: tuple[Any, ...]) -> None:
        budget = self.budget
        budget.take(sum(map(budget.size, parts)))

    def concat(self, pieces: Iterable[str]) -> str:
        """The pieces as one text."""
        rest = iter(pieces)
        some = list(islice(rest, _PIECES))
        self.budget.take(sum(map(len, some)))
        if len(some) < _PIECES:
            return "".join(some)
        joined = []
        while some:
            joined.append("".join(some))
            some = list(islice(rest, _PIECES))
            self.budget.take(sum(map(len, some)))
        self.budget.take(sum(map(len, joined)))
        return "".join(joined)

    def plus(self, left: Any, right: Any) -> Any:
        """``a + b``."""
        if type(left) is str and type(right) is str and len(left) + len(right) < SMALL:
            return left + right
        return add(self.budget, left, right)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Another operator."""
        return OPERATORS[operator](self.budget, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A function, macro or method that the template calls."""
        owner = getattr(__obj, "__self__", None)
        if not isinstance(owner, _OWNERS) and __obj is not dict:
            return super().call(__context, __obj, *args, **kwargs)
        if not __self.is_safe_callable(__obj):
            return super().call(__context, __obj, *args, **kwargs)
        for name in _OF_MACROS:
            kwargs.pop(name, None)
        return call_method(__self.budget, owner, __obj.__name__, __obj, args, kwargs)

    def wrap_str_format(self, value: Any) -> Any:
        """``str.format`` and ``format_map``, found as attributes."""
        name = getattr(value, "__name__", "")
        if name not in ("format", "format_map") or not isinstance(getattr(value, "__self__", None), str):
            return None

        def format(*args: Any, **kwargs: Any) -> str:
            if name == "format_map":
                (kwargs,), args = args, ()
            return _Formatter(self).vformat(value.__self__, args, kwargs)

        return format


_OF_MACROS = (
    "_loop_vars",
    "_block_vars",
)  # given with every call, meant for functions that ask for the context
_OWNERS = (str, bytes, int, list, tuple, dict)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    from datetime import datetime

    check_format(pattern)
    return datetime.now().strftime(pattern)
