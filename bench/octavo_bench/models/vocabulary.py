"""A byte-level BPE vocabulary of any size, so that a random model can be loaded by servers that want a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

END = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token 0 ends a text, then come the 256 bytes, then pairs of bytes, each with its merge."""

    tokens: list[str]
    merges: list[tuple[str, str]]


def _byte_letters() -> list[str]:
    """The printable letter that stands for each byte in byte-level BPE, as GPT-2 defined it."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    letters, spare = {b: chr(b) for b in printable}, 256
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(spare)
            spare += 1
    return [letters[byte] for byte in range(256)]


def vocabulary(size: int) -> Vocabulary:
    """``size`` tokens, from 257 up to 257 + 256 * 256."""
    letters = _byte_letters()
    pairs = [(letters[i // 256], letters[i % 256]) for i in range(size - 257)]
    return Vocabulary([END, *letters, *(a + b for a, b in pairs)], pairs)
