"""What is wrong with a field, in the words of JSON."""

from __future__ import annotations

import re

import msgspec

from octavo_gateway.protocol.errors import ApiError, invalid, quoted

_TYPES = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_WRONG_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def wrong_value(text: str, body: bytes) -> ApiError:
    """msgspec's "Expected `int`, got `str` - at `$.messages[0].name`" as an error that names field and value.

    Args:
        text: msgspec's message.
        body: the JSON that it is about.
    """
    what, _, path = text.partition(" - at `")
    path = path.rstrip("`").removeprefix("$")
    param = path.removeprefix(".") or None
    if what.startswith("Object missing required field `"):
        missing = what.split("`")[1]
        param = f"{param}.{missing}" if param else missing
        return invalid(param, f"{param} is required.", code="missing_required_parameter")
    subject = f"{param}:" if param else "The body:"
    if found := _WRONG_TYPE.fullmatch(what):
        wanted = [_TYPES.get(name, name) for name in found[1].split(" | ")]
        return invalid(param, f"{subject} {_either(wanted)} is expected, got {_value(body, path, found[2])}.")
    what = what.replace("`", "")
    return invalid(param, f"{subject} {what[:1].lower()}{what[1:]}.")


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _value(body: bytes, path: str, type_: str) -> str:
    """The value at a path, in short; where it is not found, what it is."""
    kind = _TYPES.get(type_, type_)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # the wrong field was noticed first
        return kind
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return kind
        at = step.end()
        try:
            value = value[step[1]] if step[1] is not None else value[int(step[2])]
        except (KeyError, IndexError, TypeError):
            return kind
    if isinstance(value, str):
        return f"the string {quoted(value)}"
    if isinstance(value, (list, dict)):
        return kind
    return msgspec.json.encode(value).decode()
