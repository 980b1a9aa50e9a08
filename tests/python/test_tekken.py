"""A tekken.json gives the ids and the text of tiktoken with the same ranks."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ModelError
from octavo.tokenizer import Tokenizer, from_folder, from_gguf
from octavo.tokenizer.splits import split_of

from .corpus import FAMILY_TEXTS, TEXTS, random_texts

tiktoken = pytest.importorskip("tiktoken")

SPECIAL = 20


def ranked(metadata: dict[str, Any]) -> list[bytes]:
    """All bytes, then the default model's tokens in the order in which they were merged."""
    source = from_gguf(metadata)
    tokens = [bytes([i]) for i in range(256)]
    tokens += [source.token_bytes(i) for i in range(17, source.vocab_size)]
    return list(dict.fromkeys(t for t in tokens if t))


@pytest.fixture(scope="module")
def vocab(smollm2_metadata: dict[str, Any]) -> list[bytes]:
    return ranked(smollm2_metadata)


def document(vocab: list[bytes], **changes: Any) -> dict[str, Any]:
    return {
        "config": {
            "pattern": split_of("tekken").pattern,
            "num_vocab_tokens": len(vocab),
            "default_vocab_size": len(vocab) + SPECIAL - 100,  # the file has more tokens than the model
            "default_num_special_tokens": SPECIAL,
            "version": "v3",
        },
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None}
            for i, t in enumerate(vocab)
        ],
        **changes,
    }


@pytest.fixture(scope="module")
def loaded(vocab: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    folder = tmp_path_factory.mktemp("tekken")
    (folder / "tekken.json").write_text(json.dumps(document(vocab)))
    ranks = {t: i for i, t in enumerate(vocab[:-100])}
    reference = tiktoken.Encoding(
        "tekken", pat_str=split_of("tekken").pattern, mergeable_ranks=ranks, special_tokens={}
    )
    return from_folder(folder), reference


def different(loaded: tuple[Tokenizer, Any], texts: list[str]) -> list[str]:
    ours, reference = loaded
    got = ours.encode_batch(texts, add_special_tokens=False)
    want = [[i + SPECIAL for i in ids] for ids in reference.encode_ordinary_batch(texts, num_threads=1)]
    return [text for text, a, b in zip(texts, got, want, strict=True) if a != b]


def test_ids_and_text_equal_tiktokens(loaded: tuple[Tokenizer, Any]) -> None:
    texts = TEXTS + FAMILY_TEXTS + random_texts(300, seed=31)
    assert different(loaded, texts) == []
    ours, reference = loaded
    for text in texts:
        ids = ours.encode(text, add_special_tokens=False)
        data = b"".join(ours.token_bytes(i) for i in ids)
        assert data == reference.decode_bytes([i - SPECIAL for i in ids]) == text.encode()
        assert ours.decode(ids) == text


@pytest.mark.slow
def test_ids_equal_tiktokens_on_10000_random_strings(loaded: tuple[Tokenizer, Any]) -> None:
    assert different(loaded, random_texts(10_000, seed=32)) == []


def test_special_tokens(loaded: tuple[Tokenizer, Any]) -> None:
    ours, _ = loaded
    assert ours.encode("x")[0] == ours.bos_token_id == 1
    assert ours.eos_token_ids == [2]
    assert ours.encode("[INST]x[/INST]", add_special_tokens=False)[::2] == [3, 4]
    assert ours.special_ids == frozenset(range(SPECIAL))
    assert ours.decode([1, 3, 4]) == "" and ours.token_text(3) == "[INST]"


def test_listed_special_tokens_win_over_equal_words(vocab: list[bytes], tmp_path: Path) -> None:
    names = ["<unk>", "<s>", "</s>", " the".replace(" ", "Ġ"), "the"]
    special = [{"rank": i, "token_str": n, "is_control": True} for i, n in enumerate(names)]
    (tmp_path / "tekken.json").write_text(json.dumps(document(vocab, special_tokens=special)))
    ours = from_folder(tmp_path)
    assert ours.encode("x the", add_special_tokens=False)[-1] == 4
    assert ours.token_text(7) == "<SPECIAL_7>"
    assert max(ours.encode("".join(TEXTS))) < ours.vocab_size == len(vocab) - 80


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"config": None}, "no config.pattern"),
        (
            {"config": {"pattern": "(", "default_vocab_size": 276, "default_num_special_tokens": 20}},
            "cannot be used",
        ),
        ({"config": {"pattern": "x", "default_vocab_size": -1}}, "default_vocab_size is -1"),
        ({"config": {"pattern": "x", "default_vocab_size": 10**12}}, "default_vocab_size is 1000000000000"),
        (
            {"config": {"pattern": "x", "default_vocab_size": 10, "default_num_special_tokens": 20}},
            "vocab is not",
        ),
        (
            {"vocab": [{"rank": 3, "token_bytes": "AA=="}] * 400},
            "entry 0 of vocab cannot be read: its rank is 3",
        ),
        ({"vocab": [7] * 400}, "entry 0 of vocab"),
        ({"vocab": [{"rank": i, "token_bytes": "AA=="} for i in range(400)]}, "same bytes"),
        ({"vocab": [{"rank": 0, "token_bytes": "*"}] * 400}, "entry 0 of vocab"),
        ({"special_tokens": [{"rank": 1, "token_str": "a"}]}, "in order of their ranks"),
        (
            {"special_tokens": [{"rank": 0, "token_str": "a"}, {"rank": 1, "token_str": "a"}]},
            "20 different tokens",
        ),
    ],
)
def test_files_that_cannot_be(vocab: list[bytes], tmp_path: Path, change: dict[str, Any], match: str) -> None:
    (tmp_path / "tekken.json").write_text(json.dumps({**document(vocab[:400]), **change}))
    with pytest.raises(ModelError, match=match) as caught:
        from_folder(tmp_path)
    assert caught.value.code == "corrupt_file"
