"""The text in a message's content."""

from __future__ import annotations

from typing import Any

from octavo import checks
from octavo.errors import InvalidArgumentError

_KINDS = ("text", "input_text", "output_text", "refusal")


def content_texts(content: Any, where: str) -> list[str]:
    """The texts of a list of parts.

    Args:
        where: names the content in errors.

    Raises:
        InvalidArgumentError: it is no such list, or a part is not text.
    """
    if not isinstance(content, list):
        raise checks.invalid(where, content, "a string or a list of parts")
    texts: list[str] = []
    for i, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type", "text") if isinstance(part, dict) else None
        text = part.get("refusal" if kind == "refusal" else "text") if isinstance(part, dict) else None
        if kind not in _KINDS:
            raise InvalidArgumentError(
                f"{where}[{i}].type must be 'text' for this model, got {kind!r}", param=f"{where}[{i}].type"
            )
        if not isinstance(text, str):
            raise checks.invalid(f"{where}[{i}].text", text, "a string")
        texts.append(text)
    return texts
