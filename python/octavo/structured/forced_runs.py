"""How long a text a grammar may force at one stroke.

What a grammar leaves no choice about is found byte by byte, in one go and in the middle of a step. So a grammar that
may force long texts is compiled without forcing: its tokens are sampled one by one, each held to the grammar all the
same. The estimate need not find what a definition within itself adds up to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from typing import Any

from octavo.structured.longest_text import MOST, Sum, lark_definitions, longest, pattern_size
from octavo.structured.schema import referred

MAX_FORCED = 2048  # bytes, found in about 10 ms
MAX_ITEMS = 256  # that an array must have, those of arrays within it included
MAX_COMPACT = 16 * 1024  # bytes of a schema without white space between the parts of its documents

_EMBEDDED = re.compile(r"%json\s*")
_DECODER = json.JSONDecoder()


def may_force_long(kind: str, text: str) -> bool:
    """Of a grammar of a kind that ``GrammarSpec`` names."""
    if kind == "regex":
        return pattern_size(text) > MAX_FORCED
    if kind == "lark":
        return _lark_is_long(text)
    root = _parsed(text, 0)[0]
    if kind == "json_schema":
        return _schema_is_long(root)
    return any(
        (isinstance(node.get("lark_grammar"), str) and _lark_is_long(node["lark_grammar"]))
        or _schema_is_long(node.get("json_schema"))
        for node, _ in _nodes(root.get("grammars") if isinstance(root, dict) else None)
    )


def _lark_is_long(text: str) -> bool:
    own, at = "", 0
    for found in _EMBEDDED.finditer(text):
        if found.start() < at:
            continue
        own += text[at : found.start()]
        schema, at = _parsed(text, found.end())
        if _schema_is_long(schema):
            return True
    return longest(lark_definitions(own + text[at:])) > MAX_FORCED


def _parsed(text: str, at: int) -> tuple[Any, int]:
    """A JSON value and where it ends; None where there is none, which the compiler is to complain about."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at


def _schema_is_long(root: Any) -> bool:
    whitespace = root.get("x-guidance") if isinstance(root, dict) else None
    compact = isinstance(whitespace, dict) and "whitespace_pattern" not in whitespace
    if compact and longest(_schema_definitions(root)) > MAX_COMPACT:
        return True
    return any(items > MAX_ITEMS or _node_is_long(node) for node, items in _nodes(root))


def _schema_definitions(root: Any) -> dict[Hashable, list[Sum]]:
    """The whole and all that is referred to, under numbers; each is at least as long as its documents must be."""
    named = {
        node["$ref"]: referred(root, node["$ref"])
        for node, _ in _nodes(root)
        if isinstance(node.get("$ref"), str)
    }
    parts = {id(part): part for part in (root, *named.values())}
    definitions: dict[Hashable, list[Sum]] = {}
    for number, part in parts.items():
        total, stack = Sum(), [(part, 1)]
        while stack:
            node, times = stack.pop()
            if node is not part and isinstance(node, (dict, list)) and id(node) in parts:
                total.names.append((times, id(node)))
            elif isinstance(node, dict):
                total.own += times * sum(len(key) + 4 for key in node)
                if isinstance(node.get("$ref"), str):
                    total.names.append((times, id(named[node["$ref"]])))
                least = node.get("minItems")
                repeated = min(MOST, times * (max(1, least) if isinstance(least, int) else 1))
                stack += ((child, repeated if key == "items" else times) for key, child in node.items())
            elif isinstance(node, list):
                stack += ((child, times) for child in node)
            else:
                total.own += times * (len(str(node)) + 2)
        definitions[number] = [total]
    return definitions


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
    if isinstance(pattern, str) and pattern_size(pattern) > MAX_FORCED:
        return True
    return any(len(name) > MAX_FORCED for name in node)
