"""JSON schemas before they are compiled: bounds, and languages without a finite document."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from octavo import checks
from octavo.errors import InvalidArgumentError

# Between the parts of a document: a blank, or a line break and an indentation. Bounded, so that a model cannot go on
# in blanks for ever.
WHITESPACE = r"[\x20]|\n[\x20]{0,24}"

MAX_DEPTH = 100
MAX_REFERENCES = 2000  # different ones
MAX_TEXT = 2**20  # characters of a schema given as text
MAX_VALUES = (
    2**16
)  # reading it holds the interpreter's lock: what it is made of is bounded, and not only its bytes
MAX_EMBEDDED = 1000  # schemas in a grammar
MAX_LENGTH = 10**9  # of a string
MAX_MULTIPLE = 100_000  # a multiple costs the compiler an automaton of so many states

_DATA = {"const", "enum", "default", "example", "examples"}
_NAMED = {
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
}  # whose keys are names
_PATH = 120  # characters of one in a message
_EMBEDDED = re.compile(r"%json\s*")
_DECODER = json.JSONDecoder()
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def prepared(given: Any, whitespace: str | None) -> str:
    """The schema as JSON text with its whitespace fixed.

    Raises:
        InvalidArgumentError: it is no schema, too deep, or no finite document fits it.
    """
    root = parsed(given, "json")
    _check_depth(root)
    _check_numbers(root, "json")
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
    text = json.dumps({**root, "x-guidance": options}, ensure_ascii=False)
    return checks.unicode_text("json", text)


def parsed(given: Any, name: str) -> dict[str, Any]:
    """A JSON object, given as such or as text."""
    value = given
    if isinstance(given, str):
        if len(given) > MAX_TEXT:
            raise InvalidArgumentError(
                f"{name} has {len(given)} characters, at most {MAX_TEXT} are possible", param=name
            )
        try:
            value = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"{name} is not JSON: {error}", param=name) from None
    if value is True:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{name} must be a JSON object, got {type(value).__name__}", param=name)
    _check_size(value, name)
    try:
        checked = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} is not JSON: {error}", param=name) from None
    assert isinstance(checked, dict)
    return checked


def _check_size(root: Any, name: str) -> None:
    stack, count = [root], 1
    while stack:
        node = stack.pop()
        if not isinstance(node, (Mapping, list, tuple)):
            continue
        count += len(node)
        if count > MAX_VALUES:
            raise InvalidArgumentError(f"{name} has more than {MAX_VALUES} values in all", param=name)
        stack += node.values() if isinstance(node, Mapping) else node


def _check_depth(root: Any) -> None:
    level, depth = [root], 0
    while level:
        if depth > MAX_DEPTH:
            raise InvalidArgumentError(f"the schema is nested deeper than {MAX_DEPTH}", param="json")
        level = [child for node in level for child in _children(node)]
        depth += 1


def check_embedded(text: str) -> None:
    """Bounds of the schemas within a grammar in Lark's syntax; what is not JSON is the compiler's to complain about."""
    if len(text) > MAX_TEXT:
        raise InvalidArgumentError(
            f"grammar has {len(text)} characters, at most {MAX_TEXT} are possible", param="grammar"
        )
    for count, found in enumerate(_EMBEDDED.finditer(text)):
        if count == MAX_EMBEDDED:
            raise InvalidArgumentError(
                f"grammar has more than {MAX_EMBEDDED} schemas within it", param="grammar"
            )
        try:
            root, _ = _DECODER.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            continue
        _check_numbers(root, "grammar")


def _check_numbers(root: Any, name: str) -> None:
    """Numbers that the compiler has no words for. Where several multipleOf apply, their least common multiple does."""
    least = 1
    for path, node in _located(root, name):
        for limit in ("minLength", "maxLength"):
            length = node.get(limit)
            if path and isinstance(length, int) and length > MAX_LENGTH:
                raise InvalidArgumentError(
                    f"{path}.{limit} must be at most {MAX_LENGTH}, got {length:.6g}", param=name
                )
        value = node.get("multipleOf")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue  # the compiler's to complain about
        if not 0 < value < math.inf:
            if path:
                raise InvalidArgumentError(f"{path}.multipleOf must be above 0, got {value}", param=name)
            continue
        exact = Decimal(str(value))
        digits = int(exact.scaleb(-min(0, int(exact.normalize().as_tuple().exponent))))
        least = math.lcm(least, digits)
        if least > MAX_MULTIPLE:
            raise InvalidArgumentError(
                f"multipleOf: those of one schema must have a common multiple, the decimal point left out, of at most "
                f"{MAX_MULTIPLE}, got {value}",
                param="json",
            )


def _located(root: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every map, with where it stands; without that where it is data, which only a reference makes a schema."""
    stack: list[tuple[str, str, Any]] = [(name, "", root)]
    while stack:
        path, key, node = stack.pop()
        if isinstance(node, dict):
            yield path, node
            for inner, child in node.items():
                data = not path or (inner in _DATA and key not in _NAMED)
                stack.append(("" if data else f"{path}.{inner}"[-_PATH:], inner, child))
        elif isinstance(node, list):
            stack += [(path and f"{path}[{i}]"[-_PATH:], key, child) for i, child in enumerate(node)]


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
    targets = {name: referred(root, name) for name in _references(root)}
    if len(targets) > MAX_REFERENCES:
        raise InvalidArgumentError(
            f"the schema has {len(targets)} different references, at most {MAX_REFERENCES} are possible",
            param="json",
        )
    users: dict[str, list[str]] = {name: [] for name in targets}
    for name, target in targets.items():
        for used in _references(target):
            users[used].append(name)
    known: set[str] = set()
    waiting = list(targets)
    while waiting:
        name = waiting.pop()
        if name in known:
            continue
        if targets[name] is None or _productive(targets[name], known, root):
            known.add(name)
            waiting += users[name]
    return known


def referred(root: Any, name: str) -> Any:
    """What a reference within the schema leads to; None where there is nothing."""
    if name != "#" and not name.startswith("#/"):
        return None
    node = root
    for part in name[2:].split("/") if len(name) > 1 else []:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and _INDEX.fullmatch(part) and int(part) < len(node):
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
