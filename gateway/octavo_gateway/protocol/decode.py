"""From body bytes to a checked struct. Every failure is a 400 that names the field."""

from __future__ import annotations

import logging
import re
from typing import Any, TypeVar

import msgspec

from octavo_gateway.protocol.errors import ApiError, invalid, quoted, shorten
from octavo_gateway.protocol.wrong_value import wrong_value

_log = logging.getLogger("octavo.gateway.protocol")

T = TypeVar("T", bound=msgspec.Struct)

DEFAULT_MAX_DEPTH = 64
# Arrays, objects and strings in a body. Decoding holds the interpreter's lock: what it makes must be bounded, and not
# only the bytes it is made from.
MAX_VALUES = 2**17
# Items of all kinds: numbers above all, of which more are made in the same time.
MAX_LIST_ITEMS = 2**20

# Known to the API and without effect here: accepted silently.
_NO_EFFECT = frozenset(
    {
        "user",
        "store",
        "metadata",
        "service_tier",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "verbosity",
    }
)
# Older spellings that would change the output if they were ignored: what to send instead.
_CALLS_REPLACED = {"functions": "tools", "function_call": "tool_choice"}
_FORMS_REPLACED = {
    "guided_json": "structured_outputs.json",
    "guided_regex": "structured_outputs.regex",
    "guided_choice": "structured_outputs.choice",
    "guided_grammar": "structured_outputs.grammar",
}
_ASKS_FOR_NO_CALLS = frozenset({b"null", b"[]", b"{}", b'""', b'"none"', b"false"})

# No match begins within a string: there the quotes around a name have backslashes.
_NOT_FINITE = re.compile(rb'"([a-z_]{1,64})"\s*:\s*(NaN|-?Infinity)\b')
_NOT_STRUCTURE = bytes(c for c in range(256) if c not in b'"[]{}')
_BRACES_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")


def decode(body: bytes, type_: type[T], *, max_depth: int = DEFAULT_MAX_DEPTH) -> T:
    """Decode a JSON object into `type_`; unknown fields are accepted and logged at debug."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as e:
        raise invalid(None, f"The body is not valid UTF-8 (byte {e.start}).") from None
    if not body.strip():
        raise invalid(None, "The body is empty; a JSON object is expected.")
    check_structure(body, max_depth)
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        _check_unknown(fields, type_)
        return _decode(body, type_)
    except msgspec.ValidationError as e:
        raise wrong_value(str(e), body) from None
    except (msgspec.DecodeError, UnicodeError) as e:
        raise _not_json(body, str(e)) from None
    except RecursionError:
        raise _too_deep(max_depth) from None


def _not_json(body: bytes, reason: str) -> ApiError:
    """JSON has no NaN and no infinities, but some encoders write them: then the field is named."""
    found = _NOT_FINITE.search(body)
    if found is None:
        return invalid(None, f"The body is not valid JSON: {reason}")
    name, number = found[1].decode(), found[2].decode()
    return invalid(name, f"{name}: a finite number is expected, got {number}.")


def _decode(body: bytes, type_: type[T]) -> T:
    """JSON knows no integers: where one is wanted, 16.0 is as good as 16."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as e:
        if "got `float`" not in str(e):
            raise
        return msgspec.convert(_with_integers(msgspec.json.decode(body)), type_)


def _with_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    return value


def check_structure(body: bytes, max_depth: int) -> None:
    """Refuse more than MAX_VALUES arrays, objects and strings, and what is nested deeper than `max_depth`.

    Without recursion and at the speed of bytes.replace: escapes, then strings, are cut out; what is left is brackets,
    and each pass takes away the innermost layer.
    """
    _check_items(body)
    opening = body.count(b"[") + body.count(b"{")
    if opening <= max_depth and body.count(b'"') <= 2 * MAX_VALUES:
        return
    rest = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE)
    strings = rest.count(b'"') // 2
    if strings > MAX_VALUES:
        raise _too_many(body)
    if strings:
        rest = b"".join(rest.split(b'"')[::2])
    if strings + rest.count(b"[") + rest.count(b"{") > MAX_VALUES:
        raise _too_many(body)
    rest = rest.translate(_BRACES_TO_BRACKETS)
    for _ in range(max_depth):
        shorter = rest.replace(b"[]", b"")
        if len(shorter) == len(rest):
            break
        rest = shorter
    if rest and (b"[]" in rest or rest.count(b"[") > max_depth):
        raise _too_deep(max_depth)


def _check_items(body: bytes) -> None:
    """Refuse more than MAX_LIST_ITEMS commas outside of strings."""
    if body.count(b",") <= MAX_LIST_ITEMS:
        return
    rest = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if sum(part.count(b",") for part in rest.split(b'"', 2 * MAX_VALUES)[::2]) > MAX_LIST_ITEMS:
        raise _too_many(body, f"{MAX_LIST_ITEMS} items")


def _too_many(body: bytes, what: str = f"{MAX_VALUES} arrays, objects and strings") -> ApiError:
    """Names the field that most of the body is."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        fields = {}
    longest = max(fields, key=lambda name: len(fields[name]), default=None)
    param = None if longest is None else shorten(longest, 64)
    where = "" if param is None else f"{param}: "
    return invalid(param, f"{where}A body may have at most {what} in all.")


def _too_deep(limit: int) -> ApiError:
    return invalid(None, f"The body nests arrays or objects deeper than {limit} levels.")


def _check_unknown(fields: dict[str, msgspec.Raw], type_: type[msgspec.Struct]) -> None:
    unknown = fields.keys() - set(type_.__struct_encode_fields__) - _NO_EFFECT
    for name in sorted(unknown):
        instead = _replaced_by(name, bytes(fields[name]).strip())
        if instead is not None:
            raise ApiError(
                400,
                f"{shorten(name, 64)} is not supported; the field for this is {instead}.",
                param=name[:64],
                code="unsupported_parameter",
            )
        _log.debug("unknown field %s is ignored", quoted(name))


def _replaced_by(name: str, value: bytes) -> str | None:
    """What to send instead of a field that asks for something; None where it may be ignored.

    An empty form asks for something: as a schema {} is any document, and of no choices none is possible.
    """
    if name in _CALLS_REPLACED:
        return None if value in _ASKS_FOR_NO_CALLS else _CALLS_REPLACED[name]
    if name.startswith("guided_") and value != b"null":
        return _FORMS_REPLACED.get(name, "structured_outputs")
    return None
