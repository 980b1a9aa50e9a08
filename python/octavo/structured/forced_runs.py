"""How long a text a grammar may force at one stroke.

What a grammar leaves no choice about is found byte by byte, in one go and in the middle of a step. So a grammar that
may force long texts is compiled without forcing: its tokens are sampled one by one, each held to the grammar all the
same. The estimate need only find what is long in few parts; many short ones have bounds in the grammar library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_FORCED = 2048  # bytes, found in about 10 ms
MAX_ITEMS = 256  # that an array must have, those of arrays within it included
MAX_COMPACT = 16 * 1024  # bytes of a schema without white space between the parts of its documents

_EMBEDDED = re.compile(r"%json\s*")
_COUNT = re.compile(r"(\)?)\{(\d{1,9})")
_DECODER = json.JSONDecoder()


def may_force_long(kind: str, text: str) -> bool:
    """Of a grammar of a kind that ``GrammarSpec`` names."""
    if not _is_long(text) and "minItems" not in text:
        return False
    if kind == "json_schema":
        return _schema_is_long(_parsed(text, 0)[0])
    if kind != "lark":
        return _is_long(text)
    own, at = "", 0
    for found in _EMBEDDED.finditer(text):
        if found.start() < at:
            continue
        own += text[at : found.start()]
        schema, at = _parsed(text, found.end())
        if _schema_is_long(schema):
            return True
    return any(map(_is_long, (own + text[at:]).splitlines()))


def _is_long(text: str) -> bool:
    """By its own length times the counts in it: those of groups may be nested, and of the others one counts."""
    most, groups = 1, 1
    for group, count in _COUNT.findall(text):
        if group:
            groups = min(groups * max(1, int(count)), MAX_FORCED)
        else:
            most = max(most, int(count))
    return len(text) * most * groups > MAX_FORCED


def _parsed(text: str, at: int) -> tuple[Any, int]:
    """A JSON value and where it ends; None where there is none, which the compiler is to complain about."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at


def _schema_is_long(root: Any) -> bool:
    whitespace = root.get("x-guidance") if isinstance(root, dict) else None
    compact = isinstance(whitespace, dict) and "whitespace_pattern" not in whitespace
    if compact and len(json.dumps(root)) > MAX_COMPACT:
        return True
    return any(items > MAX_ITEMS or _node_is_long(node) for node, items in _nodes(root))


def _nodes(root: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """The objects in a schema, and how many items the arrays must have that each is in."""
    stack = [(root, 1)]
    while stack:
        node, items = stack.pop()
        if isinstance(node, dict):
            least = node.get("minItems")
            items *= max(1, least) if isinstance(least, int) else 1
            yield node, items
            stack += ((child, items) for child in node.values())
        elif isinstance(node, list):
            stack += ((child, items) for child in node)


def _node_is_long(node: dict[str, Any]) -> bool:
    options = node["enum"] if isinstance(node.get("enum"), list) else []
    if any(len(json.dumps(value)) > MAX_FORCED for value in (node.get("const"), *options)):
        return True
    pattern = node.get("pattern")
    if isinstance(pattern, str) and _is_long(pattern):
        return True
    return any(len(name) > MAX_FORCED for name in node)
