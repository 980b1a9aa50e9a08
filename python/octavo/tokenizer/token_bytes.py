"""What each token id contributes to decoded text, as bytes, read off the tokenizer's decoder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from octavo.errors import ModelError
from octavo.tokenizer.byte_alphabet import CHARS, TO_LATIN1, spell

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class TokenBytes:
    """The bytes of all tokens, one after the other.

    Attributes:
        data: the bytes.
        offsets: token i is ``data[offsets[i]:offsets[i + 1]]``.
        strip_leading_space: one leading space of a text is not part of it.
    """

    data: bytes
    offsets: list[int]
    strip_leading_space: bool

    def __getitem__(self, token: int) -> bytes:
        return self.data[self.offsets[token] : self.offsets[token + 1]]


def token_bytes(tokens: Sequence[str], decoder: dict[str, Any] | None) -> TokenBytes:
    """Express ``decoder`` (as tokenizer.json spells it) as bytes per token.

    Raises:
        ModelError: the decoder does something that bytes per token cannot express; it is named.
    """
    steps = _flatten(decoder)
    if [step["type"] for step in steps] == ["ByteLevel"]:
        return _byte_level(tokens)
    return _sentencepiece(tokens, steps)


def decoder_of(backend: Any) -> dict[str, Any] | None:
    """The decoder of a `tokenizers.Tokenizer` as plain data."""
    if backend.decoder is None:
        return None
    state: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    return state


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        raise _unsupported("none (tokens joined by spaces)")
    if decoder["type"] == "Sequence":
        return [step for part in decoder["decoders"] for step in _flatten(part)]
    return [decoder]


def _byte_level(tokens: Sequence[str]) -> TokenBytes:
    # One character is one byte, so the whole vocabulary is translated at once. A token with a character outside the
    # alphabet (an added token) stands for its own UTF-8 bytes.
    if not CHARS.issuperset("".join(tokens)):
        tokens = [t if CHARS.issuperset(t) else spell(t.encode()) for t in tokens]
    data = "".join(tokens).translate(TO_LATIN1).encode("latin-1")
    return TokenBytes(data, [0, *accumulate(map(len, tokens))], strip_leading_space=False)


def _sentencepiece(tokens: Sequence[str], steps: list[dict[str, Any]]) -> TokenBytes:
    replacements: list[tuple[str, str]] = []
    byte_fallback = strip = fused = False
    for step in steps:
        kind = step["type"]
        if kind == "Replace" and "String" in step["pattern"] and not fused:
            replacements.append((step["pattern"]["String"], step["content"]))
        elif kind == "ByteFallback" and not fused:
            byte_fallback = True
        elif kind == "Fuse":
            fused = True
        elif (
            kind == "Strip" and fused and step["content"] == " " and step["stop"] == 0 and step["start"] <= 1
        ):
            strip = strip or step["start"] == 1
        elif kind == "Metaspace":
            replacements.append((step["replacement"], " "))
            if step.get("prepend_scheme", "always") != "never":
                # It drops every space of the first token, which is one leading space only if tokens have no others.
                if any(step["replacement"] in token[1:] for token in tokens):
                    raise _unsupported("Metaspace (over tokens with inner spaces)")
                strip = True
        else:
            raise _unsupported(" -> ".join(s["type"] for s in steps) if len(steps) > 1 else kind)
    pieces: list[bytes] = []
    for token in tokens:
        match = _BYTE_TOKEN.fullmatch(token) if byte_fallback else None
        if match:
            pieces.append(bytes([int(match[1], 16)]))
            continue
        for old, new in replacements:
            token = token.replace(old, new)
        pieces.append(token.encode())
    return TokenBytes(b"".join(pieces), [0, *accumulate(map(len, pieces))], strip_leading_space=strip)


def _unsupported(what: str) -> ModelError:
    return ModelError(
        f"tokenizer decoder {what} cannot be expressed as bytes per token; supported are ByteLevel, Metaspace and "
        "SentencePiece's Replace/ByteFallback/Fuse/Strip",
        code="unsupported",
        param="tokenizer.decoder",
    )
