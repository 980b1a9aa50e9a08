"""JSON schemas of the kinds that applications send, generated: nested, recursive, with unions, bounds and patterns."""

from __future__ import annotations

import random
from typing import Any

_NAMES = ["id", "name", "first_name", "email", "created_at", "items", "tags", "price", "is_active", "address", "zip",
          "user-agent", "größe", "x", "description", "children", "status", "count", "$type", "a b"]  # fmt: skip
_PATTERNS = [
    "^[a-z]{2,5}$",
    "^[A-Z]{3}-[0-9]{2,4}$",
    "[0-9]+",
    "^(foo|bar)baz$",
    "^\\d{4}-\\d{2}$",
    "^[^/\\s]{1,6}$",
]
_FORMATS = ["date", "date-time", "email", "uuid", "ipv4", "time"]
_UNSUPPORTED: list[dict[str, Any]] = [
    {"not": {"type": "null"}},
    {"uniqueItems": True, "type": "array"},
    {"if": {"type": "string"}, "then": {"minLength": 1}},
    {"type": "object", "propertyNames": {"pattern": "^a"}},
    {"type": "object", "dependentRequired": {"a": ["b"]}},
    {"type": "array", "contains": {"type": "integer"}},
    {"type": "string", "format": "iri-reference"},
    {"type": "string", "pattern": "(?!x)y"},
    {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    {"$ref": "https://example.com/other.json"},
]


class SchemaMaker:
    """One random schema per seed.

    Args:
        unsupported: the share of nodes that use a keyword which is not honoured.
    """

    def __init__(self, seed: int, unsupported: float = 0.0) -> None:
        self._random = random.Random(seed)
        self._unsupported = unsupported
        self._defs: dict[str, Any] = {}

    def schema(self) -> dict[str, Any]:
        root = self._node(self._random.randint(1, 4))
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, **self._definitions()}

    def _definitions(self) -> dict[str, Any]:
        return {"$defs": self._defs} if self._defs else {}

    def _node(self, depth: int) -> dict[str, Any]:
        if self._random.random() < self._unsupported:
            return dict(self._random.choice(_UNSUPPORTED))
        simple = [self._string, self._number, self._integer, self._enum, self._const, self._boolean]
        deep = [
            self._object,
            self._object,
            self._object,
            self._array,
            self._union,
            self._recursive,
            self._tuple,
        ]
        made = self._random.choice(deep if depth > 0 else simple)(depth - 1)
        if self._random.random() < 0.2:
            made = {"title": "A title", "description": "What it means", **made}
        return made

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._random.sample(_NAMES, self._random.randint(1, 5))
        made: dict[str, Any] = {
            "type": "object",
            "properties": {name: self._node(self._random.randint(0, max(depth, 0))) for name in names},
            "required": [name for name in names if self._random.random() < 0.7],
        }
        if self._random.random() < 0.8:
            made["additionalProperties"] = False
        return made

    def _array(self, depth: int) -> dict[str, Any]:
        least = self._random.randint(0, 2)
        return {"type": "array", "items": self._node(depth), "minItems": least, "maxItems": least + 2}

    def _tuple(self, depth: int) -> dict[str, Any]:
        first = [self._node(0), self._node(0)]
        return {"type": "array", "prefixItems": first, "items": False, "minItems": 2}

    def _union(self, depth: int) -> dict[str, Any]:
        options = [self._node(0), {"type": "null"}, self._node(max(depth, 0))]
        return {"anyOf": options[: self._random.randint(2, 3)]}

    def _recursive(self, depth: int) -> dict[str, Any]:
        name = f"node{len(self._defs)}"
        self._defs[name] = {}
        again = {"anyOf": [{"type": "null"}, {"$ref": f"#/$defs/{name}"}]}
        self._defs[name] = {
            "type": "object",
            "properties": {"value": self._node(0), "next": again},
            "required": ["value", "next"],
            "additionalProperties": False,
        }
        return {"$ref": f"#/$defs/{name}"}

    def _string(self, depth: int) -> dict[str, Any]:
        kind = self._random.random()
        if kind < 0.3:
            return {"type": "string", "pattern": self._random.choice(_PATTERNS), "maxLength": 12}
        if kind < 0.5:
            return {"type": "string", "format": self._random.choice(_FORMATS)}
        return {
            "type": "string",
            "minLength": self._random.randint(0, 3),
            "maxLength": self._random.randint(3, 15),
        }

    def _number(self, depth: int) -> dict[str, Any]:
        low = self._random.choice([-10, 0, 0.5])
        return {"type": "number", "minimum": low, "maximum": low + self._random.choice([1, 7.25, 1000])}

    def _integer(self, depth: int) -> dict[str, Any]:
        if self._random.random() < 0.3:
            return {
                "type": "integer",
                "multipleOf": self._random.choice([2, 5]),
                "minimum": 0,
                "maximum": 1000,
            }
        return {"type": "integer", "exclusiveMinimum": self._random.choice([-5, 0]), "maximum": 99}

    def _enum(self, depth: int) -> dict[str, Any]:
        values = ["red", "dark blue", 'a "quoted" one', "line\nbreak", "ünïcode", 7, None, True, 1.5]
        return {"enum": self._random.sample(values, self._random.randint(1, 4))}

    def _const(self, depth: int) -> dict[str, Any]:
        return {"const": self._random.choice(["fixed", 42, {"a": [1, 2]}, False])}

    def _boolean(self, depth: int) -> dict[str, Any]:
        return {"type": "boolean"}
