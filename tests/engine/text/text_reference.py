"""The reference tokenizer (`tokenizers`, from a GGUF's arrays) and the engine's token table for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from octavo import _engine

CONTROL = 3  # tokenizer.ggml.token_type


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: printable Latin-1 stands for itself, the rest from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(others)}


@dataclass
class Reference:
    tokenizer: Tokenizer
    table: _engine.TokenTable
    special: list[int]

    @property
    def vocab(self) -> int:
        return self.table.vocab

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def token_table(
    pieces: list[bytes], special: set[int] = frozenset(), strip: bool = False
) -> _engine.TokenTable:
    offsets = np.cumsum([0] + [len(p) for p in pieces], dtype=np.uint32)
    flags = np.array([i in special for i in range(len(pieces))], np.uint8)
    return _engine.TokenTable(b"".join(pieces), offsets, flags, strip)


def byte_level(path: Path) -> Reference:
    """The byte-level BPE of a GGUF file."""
    meta = _engine.GgufFile(str(path)).metadata()
    tokens = [t.decode() if isinstance(t, bytes) else t for t in meta["tokenizer.ggml.tokens"]]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    special = [i for i, kind in enumerate(meta["tokenizer.ggml.token_type"]) if kind == CONTROL]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(tokens[i], special=True, normalized=False) for i in special])
    alphabet = byte_alphabet()
    pieces = [bytes(alphabet[c] for c in t) if all(c in alphabet for c in t) else t.encode() for t in tokens]
    return Reference(tokenizer, token_table(pieces, set(special)), special)


def sentencepiece() -> Reference:
    """A small Llama-like vocabulary: leading spaces as U+2581, bytes as a fallback, one leading space stripped."""
    special = ["<unk>", "<s>", "</s>"]
    words = ["▁", "▁the", "▁cat", "s", "▁▁", "é", "▁日本", "語", ".", "\n", "▁<b>"]
    names = [*special, *(f"<0x{b:02X}>" for b in range(256)), *words]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("$^"), "isolated")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    pieces = [t.encode() for t in special] + [bytes([b]) for b in range(256)]
    pieces += [w.replace("▁", " ").encode() for w in words]
    return Reference(tokenizer, token_table(pieces, {0, 1, 2}, strip=True), [0, 1, 2])
