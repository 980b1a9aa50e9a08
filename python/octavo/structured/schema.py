"""JSON schemas before they are compiled: bounds, and languages without a finite document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from octavo.errors import InvalidArgumentError

# Between the parts of a document: a blank, or a line break and an indentation. Bounded, so that a model cannot go on
# in blanks for ever.
WHITESPACE = r"[\x20]|\n[\x20]{0,24}"

MAX_DEPTH = 100


def prepared(given: Any, whitespace: str | None) -> str:
    """The schema as JSON text with its whitespace fixed.

    Raises:
        InvalidArgumentError: it is no schema, too deep, or no finite document fits it.
    """
    root = parsed(given, "json")
    _check_depth(root)
    if not _productive(root, _productive_references(root), root):
        raise InvalidArgumentError(
            "no finite document fits the schema: a $ref leads back to itself"
            if _references(root)
            else "no document fits the schema",
            param="json",
        )
    options: dict[str, Any] = {"whitespace_flexible": False}
    if whitespace is not None:
        options = {"whitespace_pattern": whitespace}
    return json.dumps({**root, "x-guidance": options}, ensure_ascii=False)


def parsed(given: Any, name: str) -> dict[str, Any]:
    """A JSON object, given as such or as text."""
    value = given
    if isinstance(given, str):
        try:
            value = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"{name} is not JSON: {error}", param=name) from None
    if value is True:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{name} must be a JSON object, got {type(value).__name__}", param=name)
    try:
        checked = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} is not JSON: {error}", param=name) from None
    assert isinstance(checked, dict)
    return checked


def _check_depth(root: Any) -> None:
    level, depth = [root], 0
    while level:
        if depth > MAX_DEPTH:
            raise InvalidArgumentError(f"the schema is nested deeper than {MAX_DEPTH}", param="json")
        level = [child for node in level for child in _children(node)]
        depth += 1


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _references(root: Any) -> set[str]:
    return {node["$ref"] for node in _walk(root) if isinstance(node.get("$ref"), str)}


def _walk(root: Any) -> Iterator[dict[str, Any]]:
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
        stack += _children(node)


def _productive_references(root: dict[str, Any]) -> set[str]:
    """The references to which a finite document fits, as a least fixed point: those known first are assumed of none.

    A reference that cannot be found within the schema is left to the compiler to complain about.
    """
    targets = {name: _target(root, name) for name in _references(root)}
    known = {name for name, target in targets.items() if target is None}
    while True:
        more = {
            name for name, target in targets.items() if name not in known and _productive(target, known, root)
        }
        if not more:
            return known
        known |= more


def _target(root: Any, name: str) -> Any:
    if name != "#" and not name.startswith("#/"):
        return None
    node = root
    for part in name[2:].split("/") if len(name) > 1 else []:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        elif isinstance(node, dict) and part in node:
            node = node[part]
        else:
            return None
    return node


def _productive(node: Any, known: set[str], root: Any) -> bool:
    """Whether a finite document fits, if one fits each known reference and none the others."""
    if not isinstance(node, dict):
        return node is not False
    if isinstance(node.get("$ref"), str) and node["$ref"] not in known:
        return False
    every, some = _schemas(node.get("allOf")), [_schemas(node.get(k)) for k in ("anyOf", "oneOf")]
    if not all(_productive(s, known, root) for s in every):
        return False
    if not all(any(_productive(s, known, root) for s in options) for options in some if options):
        return False
    if node.get("type") == "object":
        return all(_productive(s, known, root) for s in _required(node))
    if node.get("type") == "array":
        return all(_productive(s, known, root) for s in _needed_items(node))
    return True


def _schemas(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _required(node: dict[str, Any]) -> list[Any]:
    properties, required = node.get("properties"), node.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return []
    return [properties[name] for name in required if isinstance(name, str) and name in properties]


def _needed_items(node: dict[str, Any]) -> list[Any]:
    least = node.get("minItems")
    if not isinstance(least, int) or least < 1:
        return []
    first = _schemas(node.get("prefixItems"))[:least]
    return first + ([node["items"]] if least > len(first) and "items" in node else [])
