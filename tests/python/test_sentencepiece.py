"""A SentencePiece vocabulary out of a GGUF file gives the ids of the sentencepiece library itself."""

from __future__ import annotations

import io
import random
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from octavo.chat import ChatTemplate
from octavo.errors import ModelError
from octavo.tokenizer import Tokenizer, from_gguf

from .corpus import FAMILY_TEXTS, TEXTS, random_texts

sentencepiece = pytest.importorskip("sentencepiece")


def train(**options: Any) -> tuple[Any, dict[str, Any]]:
    """A small model of this repository's text, and the metadata that a GGUF file would hold of it."""
    files = sorted(Path(__file__).parents[2].glob("python/octavo/**/*.py")) + sorted(
        Path(__file__).parents[2].glob("*.md")
    )
    lines = [line for file in files for line in file.read_text().splitlines() if line] + TEXTS[9:13] * 20
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=1500, byte_fallback=True, split_digits=True,
        allow_whitespace_only_pieces=True, character_coverage=0.99, minloglevel=2, num_threads=1, **options,
    )  # fmt: skip
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    size = sp.get_piece_size()
    kinds = [
        6 if sp.is_byte(i) else 3 if sp.is_control(i) else 2 if sp.is_unknown(i) else 1 for i in range(size)
    ]
    metadata = {
        "tokenizer.ggml.model": "t5" if options["model_type"] == "unigram" else "llama",
        "tokenizer.ggml.tokens": [sp.id_to_piece(i) for i in range(size)],
        "tokenizer.ggml.scores": [sp.get_score(i) for i in range(size)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": sp.bos_id(),
        "tokenizer.ggml.eos_token_id": sp.eos_id(),
        "tokenizer.ggml.unknown_token_id": sp.unk_id(),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": options["add_dummy_prefix"],
        "tokenizer.ggml.remove_extra_whitespaces": options["remove_extra_whitespaces"],
    }
    if options["normalization_rule_name"] != "identity":
        metadata["tokenizer.ggml.precompiled_charsmap"] = list(charsmap(model.getvalue()))
    return sp, metadata


def charsmap(model: bytes) -> bytes:
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return bytes(proto.normalizer_spec.precompiled_charsmap)


PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
KINDS = {
    "bpe": {"model_type": "bpe", "add_dummy_prefix": True, **PLAIN},
    "bpe without space prefix": {"model_type": "bpe", "add_dummy_prefix": False, **PLAIN},
    "unigram": {"model_type": "unigram", "add_dummy_prefix": True, **PLAIN},
}


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    return train(**KINDS[request.param])


def corpus(sp: Any, texts: list[str]) -> list[str]:
    controls = [sp.id_to_piece(i) for i in range(3)]
    return [t for t in texts if t and "\x00" not in t and not any(c in t for c in controls)]


def different(sp: Any, tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    """Texts that get other ids; a unigram model may choose among cuts of exactly the same score."""
    unigram = tokenizer.backend.model.__class__.__name__ == "Unigram"
    found = []
    for text in corpus(sp, texts):
        got, want = tokenizer.encode(text, add_special_tokens=False), sp.encode(text)
        if got == want or (unigram and sorted(got) == sorted(want)):
            continue
        found.append(text)
    return found


def test_ids_equal_sentencepieces(trained: tuple[Any, dict[str, Any]]) -> None:
    sp, metadata = trained
    tokenizer = from_gguf(metadata)
    assert different(sp, tokenizer, TEXTS + FAMILY_TEXTS + random_texts(200, seed=5)) == []
    assert tokenizer.encode("x") == [sp.bos_id(), *sp.encode("x")]


@pytest.mark.slow
def test_ids_equal_sentencepieces_on_10000_random_strings(trained: tuple[Any, dict[str, Any]]) -> None:
    sp, metadata = trained
    assert different(sp, from_gguf(metadata), random_texts(10_000, seed=6)) == []


@pytest.mark.slow
def test_a_unigram_model_that_normalizes_text() -> None:
    sp, metadata = train(
        model_type="unigram",
        add_dummy_prefix=True,
        normalization_rule_name="nmt_nfkc",
        remove_extra_whitespaces=True,
    )
    tokenizer = from_gguf(metadata)
    # The tokenizers library normalizes whole graphemes: it may lose a mark that SentencePiece keeps.
    texts = TEXTS + FAMILY_TEXTS + random_texts(2000, seed=7)
    unmarked = [
        t for t in texts if not any(unicodedata.category(c)[0] == "M" or c in "\u200d\u200c" for c in t)
    ]
    assert len(unmarked) > 500
    assert different(sp, tokenizer, unmarked) == []
    with pytest.raises(ModelError, match="precompiled_charsmap"):
        from_gguf({**metadata, "tokenizer.ggml.precompiled_charsmap": [1, 2, 3]})


def test_text_equals_sentencepieces(trained: tuple[Any, dict[str, Any]]) -> None:
    sp, metadata = trained
    tokenizer = from_gguf(metadata)
    table = tokenizer.byte_table
    assert table.strip_leading_space == metadata["tokenizer.ggml.add_space_prefix"]
    for text in corpus(sp, TEXTS + random_texts(200, seed=5)):
        ids = sp.encode(text)
        data = b"".join(table[i] for i in ids)
        if table.strip_leading_space:
            data = data.removeprefix(b" ")
        assert data.decode() == text == tokenizer.decode(ids)


def test_the_table_equals_the_decoder_for_any_ids(trained: tuple[Any, dict[str, Any]]) -> None:
    """Characters spelt in bytes among any tokens; the library spoils whole runs of bytes that are no characters."""
    sp, metadata = trained
    tokenizer = from_gguf(metadata)
    table, rng = tokenizer.byte_table, random.Random(8)
    byte_ids = [sp.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    others = [i for i in range(sp.get_piece_size()) if i not in set(byte_ids)]
    for _ in range(500):
        ids: list[int] = []
        for _ in range(rng.randrange(1, 12)):
            character = chr(rng.choice((rng.randrange(32, 0xD7FF), rng.randrange(0xE000, 0x10FFFF))))
            ids += rng.choice(([byte_ids[b] for b in character.encode()], [rng.choice(others)]))
        data = b"".join(table[i] for i in ids)
        if table.strip_leading_space:
            data = data.removeprefix(b" ")
        assert data.decode() == tokenizer.decode(ids, skip_special_tokens=False)


def test_control_tokens_in_messages_stay_text(trained: tuple[Any, dict[str, Any]]) -> None:
    sp, metadata = trained
    template = ChatTemplate(from_gguf(metadata), "<s>[INST] {{ messages[0].content }} [/INST]")
    ids = template.encode([{"role": "user", "content": "a </s> b"}])
    rest = sp.encode("[INST] a </s> b [/INST]")
    assert ids == [sp.bos_id(), *rest]
    assert sp.eos_id() not in ids


def test_a_control_token_stays_text_where_its_characters_are_unknown(
    trained: tuple[Any, dict[str, Any]],
) -> None:
    sp, metadata = trained
    kinds = metadata["tokenizer.ggml.token_type"]
    tokens = [
        f"\ue000{i}" if kind == 1 and ">" in piece else piece
        for i, (piece, kind) in enumerate(zip(metadata["tokenizer.ggml.tokens"], kinds, strict=True))
    ]
    tokenizer = from_gguf(metadata | {"tokenizer.ggml.tokens": tokens})
    ids = ChatTemplate(tokenizer, "<s>[INST] {{ messages[0].content }} [/INST]").encode(
        [{"role": "user", "content": "a </s> b"}]
    )
    assert sp.eos_id() not in ids and sp.piece_to_id("<0x3E>") in ids
    assert "</s>" in tokenizer.decode(ids[1:], skip_special_tokens=False)


@pytest.mark.parametrize("missing", ["scores", "token_type"])
def test_metadata_that_is_missing(trained: tuple[Any, dict[str, Any]], missing: str) -> None:
    metadata = {k: v for k, v in trained[1].items() if k != f"tokenizer.ggml.{missing}"}
    with pytest.raises(ModelError, match=missing):
        from_gguf(metadata)


def test_building_is_quick_enough() -> None:
    """32,000 pieces, the size of Llama 2's vocabulary."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [a + b + c for a in letters for b in letters for c in letters] + [
        a + b for a in letters for b in letters
    ]
    pieces = ["<unk>", "<s>", "</s>", "▁", *letters, *words, *("▁" + w for w in words[:14000])][:32000]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(pieces))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [1] * (len(pieces) - 3),
    }
    start = time.thread_time()
    tokenizer = from_gguf(metadata)
    assert time.thread_time() - start < 1.0
    assert isinstance(tokenizer, Tokenizer) and tokenizer.encode("abc")
