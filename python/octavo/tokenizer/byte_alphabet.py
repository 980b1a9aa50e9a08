"""The 256 printable characters by which byte-level BPE vocabularies spell bytes (Radford et al., GPT-2)."""

from __future__ import annotations


def _alphabet() -> list[str]:
    """The character for each byte: itself where it is printable Latin-1, else the next one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


CHAR_OF_BYTE = _alphabet()
CHARS = frozenset(CHAR_OF_BYTE)
# For str.translate: alphabet character -> the Latin-1 character whose code is the byte.
TO_LATIN1 = {ord(char): byte for byte, char in enumerate(CHAR_OF_BYTE)}


def spell(data: bytes) -> str:
    """The bytes in the alphabet's characters."""
    return "".join(CHAR_OF_BYTE[byte] for byte in data)
