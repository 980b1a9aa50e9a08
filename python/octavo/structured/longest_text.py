"""How long a text definitions that name each other may stand for, without writing it out."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

MOST = 2**20  # bytes; what is longer counts as this

_COUNT = re.compile(r"(\)?)\{(\d{1,9})")
# Each goes over a text once: an end that is missed makes nothing look further back.
_DEFINITION = re.compile(r"^[ \t]*[?!]?([A-Za-z_][\w-]*)(?![\w-])[^\n:\"/|]*:", re.MULTILINE)
_PART = re.compile(
    r"""(?P<comment>//[^\n]*|\#[^\n]*)
    | (?P<text>"(?:\\.|[^"\\\n])*"?)
    | (?P<regex>/(?:\\.|[^/\\\n])+/?)
    | (?P<name>[A-Za-z_][\w-]*)
    | [{~]\s*(?P<count>\d{1,9})
    | (?P<mark>[|()\[\]])""",
    re.VERBOSE,
)


@dataclass
class Sum:
    """Text of its own and of what it names, so and so many times."""

    own: int = 0  # bytes
    names: list[tuple[int, Hashable]] = field(default_factory=list)  # (times, name)


def longest(definitions: Mapping[Hashable, Sequence[Sum]]) -> int:
    """Of the texts of all definitions, each the longest of its alternatives, in bytes.

    A definition within itself counts as nothing: it can only end where there is a choice.
    """
    known: dict[Hashable, int | None] = {}  # None: it is being summed up
    for first in definitions:
        stack = [first]
        while stack:
            name = stack[-1]
            alternatives = definitions[name]
            if name not in known:
                known[name] = None
                stack += [
                    n for one in alternatives for _, n in one.names if n in definitions and n not in known
                ]
                continue
            stack.pop()
            if known[name] is None:
                sums = (
                    one.own + sum(times * (known.get(n) or 0) for times, n in one.names)
                    for one in alternatives
                )
                known[name] = min(MOST, max(sums, default=0))
    return max((size or 0 for size in known.values()), default=0)


def pattern_size(text: str) -> int:
    """Of a regular expression: its length times the counts in it; those of groups may be nested, of the others one
    counts."""
    most, groups = 1, 1
    for group, count in _COUNT.findall(text):
        if group:
            groups = min(groups * max(1, int(count)), MOST)
        else:
            most = max(most, int(count))
    return min(MOST, len(text) * most * groups)


def lark_definitions(text: str) -> dict[Hashable, list[Sum]]:
    """The rules and terminals of a grammar in Lark's syntax, without schemas in it; each group is one more."""
    definitions: dict[Hashable, list[Sum]] = {}
    starts = list(_DEFINITION.finditer(text))
    ends = [found.start() for found in starts[1:]] + [len(text)]
    for found, end in zip(starts, ends, strict=False):  # none begins: then there is no end of one either
        definitions[found[1]] = _alternatives(text[found.end() : end], definitions)
    return definitions


def _alternatives(body: str, definitions: dict[Hashable, list[Sum]]) -> list[Sum]:
    opened = [[Sum()]]
    for found in _PART.finditer(body):
        kind, part = found.lastgroup, found[0]
        one = opened[-1][-1]
        if kind == "count" and one.names:
            times, name = one.names[-1]
            one.names[-1] = (min(MOST, times * max(1, int(found["count"]))), name)
        elif kind in ("text", "regex"):
            size = len(part) - 2 if kind == "text" else pattern_size(part)
            name = (len(definitions), found.start())
            definitions[name] = [Sum(size)]
            one.names.append((1, name))
        elif kind == "name":
            one.names.append((1, part))
        elif part in ("(", "["):
            opened.append([Sum()])
        elif part in (")", "]") and len(opened) > 1:
            name = (len(definitions), found.start())
            definitions[name] = opened.pop()
            opened[-1][-1].names.append((1, name))
        elif part == "|":
            opened[-1].append(Sum())
    return opened[0]
