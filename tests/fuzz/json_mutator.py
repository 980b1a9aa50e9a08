"""Mutations that keep JSON well-formed, so that what lies behind the parser is reached."""

from __future__ import annotations

import json
import random
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 2**31, 2**63, -(2**63), 2**64, 10**30, 0.5, 1.0, 1e-320, 1e308, -0.0),
    *("", "x", "\ufeff", "\x00", "😀", "y" * 300, "{{ x }}", "<|im_end|>", [], {}, [None], [[]], {"": None}),
)


def copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys or indices."""
    found: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        node = todo.pop()
        keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            found.append((node, key))
            todo.append(node[key])
    return found


def mutate_json(text: bytes, max_size: int, seed: int) -> bytes | None:
    """`text` with one to three of its values replaced, copied, removed or repeated; None where it is no JSON."""
    draw = random.Random(seed)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for _ in range(draw.randint(1, 3)):
        all_places = places(value)
        if not all_places:
            value = copy(draw.choice(ODD))
            continue
        node, key = draw.choice(all_places)
        kind = draw.randrange(5)
        if kind == 0:
            node[key] = copy(draw.choice(ODD))
        elif kind == 1:
            other, other_key = draw.choice(all_places)
            node[key] = copy(other[other_key])
        elif kind == 2:
            del node[key]
        elif kind == 3 and isinstance(node, list):
            node.extend(copy(node[key]) for _ in range(draw.randint(1, 3)))
        elif isinstance(node[key], str):
            at = draw.randint(0, len(node[key]))
            node[key] = (
                node[key][:at]
                + draw.choice(["\x00", '"', "{", "\ud83d", "é", "|", "(", "*"])
                + node[key][at:]
            )
        else:
            node[key] = [node[key]]
    mutated = json.dumps(value).encode()
    return mutated if len(mutated) <= max_size else None
