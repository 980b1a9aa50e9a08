"""A SentencePiece vocabulary out of a GGUF file gives the ids of the sentencepiece library itself."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest

from octavo.chat import ChatTemplate
from octavo.errors import ModelError
from octavo.tokenizer import Tokenizer, from_gguf

from .corpus import TEXTS, random_texts

sentencepiece = pytest.importorskip("sentencepiece")


@pytest.fixture(scope="module", params=[True, False], ids=["space prefix", "no space prefix"])
def trained(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    """A small model trained as Llama's was, and the metadata that a GGUF file would hold of it."""
    files = sorted(Path(__file__).parents[2].glob("python/octavo/**/*.py")) + sorted(
        Path(__file__).parents[2].glob("*.md")
    )
    lines = [line for file in files for line in file.read_text().splitlines() if line] + TEXTS[9:13] * 20
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=1500, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=request.param,
        allow_whitespace_only_pieces=True, split_digits=True, character_coverage=0.99, minloglevel=2, num_threads=1,
    )  # fmt: skip
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    size = sp.get_piece_size()
    kinds = [
        6 if sp.is_byte(i) else 3 if sp.is_control(i) else 2 if sp.is_unknown(i) else 1 for i in range(size)
    ]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [sp.id_to_piece(i) for i in range(size)],
        "tokenizer.ggml.scores": [sp.get_score(i) for i in range(size)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": sp.bos_id(),
        "tokenizer.ggml.eos_token_id": sp.eos_id(),
        "tokenizer.ggml.unknown_token_id": sp.unk_id(),
        "tokenizer.ggml.add_space_prefix": request.param,
    }
    return sp, metadata


def corpus(sp: Any) -> list[str]:
    controls = [sp.id_to_piece(i) for i in range(3)]
    return [
        t
        for t in TEXTS + random_texts(200, seed=5)
        if t and "\x00" not in t and not any(c in t for c in controls)
    ]


def test_ids_equal_sentencepieces(trained: tuple[Any, dict[str, Any]]) -> None:
    sp, metadata = trained
    tokenizer = from_gguf(metadata)
    different = [t for t in corpus(sp) if tokenizer.encode(t, add_special_tokens=False) != sp.encode(t)]
    assert different == []
    assert tokenizer.encode("x") == [sp.bos_id(), *sp.encode("x")]


def test_text_equals_sentencepieces(trained: tuple[Any, dict[str, Any]]) -> None:
    sp, metadata = trained
    tokenizer = from_gguf(metadata)
    table = tokenizer.byte_table
    assert table.strip_leading_space == metadata["tokenizer.ggml.add_space_prefix"]
    for text in corpus(sp):
        ids = sp.encode(text)
        data = b"".join(table[i] for i in ids)
        if table.strip_leading_space:
            data = data.removeprefix(b" ")
        assert data.decode() == text == tokenizer.decode(ids)


def test_control_tokens_in_messages_stay_text(trained: tuple[Any, dict[str, Any]]) -> None:
    sp, metadata = trained
    template = ChatTemplate(from_gguf(metadata), "<s>[INST] {{ messages[0].content }} [/INST]")
    ids = template.encode([{"role": "user", "content": "a </s> b"}])
    rest = sp.encode("[INST] a </s> b [/INST]")
    assert ids == [sp.bos_id(), *rest]
    assert sp.eos_id() not in ids


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
