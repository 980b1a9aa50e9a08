"""Token ids equal the reference tokenizer's; the table of bytes equals its decoder."""

# ruff: noqa: RUF001 - the letters are meant

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidArgumentError, ModelError
from octavo.tokenizer import Tokenizer, from_folder, from_gguf
from octavo.tokenizer.splits import split_of
from octavo.tokenizer.token_bytes import decoder_of, token_bytes

from .corpus import TEXTS, random_texts


def table_text(tokenizer: Tokenizer, ids: list[int], skip_special: bool = False) -> str:
    table = tokenizer.byte_table
    data = b"".join(table[i] for i in ids if not (skip_special and i in tokenizer.special_ids))
    if table.strip_leading_space and data.startswith(b" "):
        data = data[1:]
    return data.decode("utf-8", "replace")


def test_ids_equal_the_reference_on_the_corpus(tokenizer: Tokenizer, reference: Any) -> None:
    texts = TEXTS + random_texts(400, seed=1)
    want = reference(texts, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode_batch(texts) == want
    assert [tokenizer.encode(text) for text in texts[:50]] == want[:50]


@pytest.mark.slow
def test_ids_equal_transformers_reading_the_gguf_itself(tokenizer: Tokenizer, smollm2: Path) -> None:
    from transformers import AutoTokenizer

    gguf = AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    # That reading knows nothing of the digit splitter, so it is compared where there are no digits after spaces.
    texts = [t for t in TEXTS + random_texts(300, seed=2) if not any(c.isnumeric() for c in t)]
    assert len(texts) > 100
    for text in texts:
        assert tokenizer.encode(text) == gguf.encode(text, add_special_tokens=False), text


def test_ids_equal_the_reference_on_source_code(tokenizer: Tokenizer, reference: Any) -> None:
    files = sorted((Path(__file__).parents[2] / "python").rglob("*.py"))[:12]
    for file in files:
        text = file.read_text()
        assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False)


@pytest.fixture(scope="module")
def known_bytes(tokenizer: Tokenizer) -> set[int]:
    """The model's vocabulary lacks some bytes that its training text never had."""
    table = tokenizer.byte_table
    return {table[i][0] for i in range(tokenizer.vocab_size) if len(table[i]) == 1}


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_text_survives_the_round_trip(tokenizer: Tokenizer, known_bytes: set[int], text: str) -> None:
    ids = tokenizer.encode(text)
    if known_bytes.issuperset(text.encode()):
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert table_text(tokenizer, ids) == tokenizer.decode(ids, skip_special_tokens=False)


def test_the_table_equals_the_decoder_for_every_token(tokenizer: Tokenizer) -> None:
    for token in range(0, tokenizer.vocab_size, 7):
        assert table_text(tokenizer, [token]) == tokenizer.decode([token], skip_special_tokens=False)
        assert tokenizer.token_text(token) == table_text(tokenizer, [token])
    assert tokenizer.token_bytes(tokenizer.encode("é")[0]) == "é".encode()
    assert tokenizer.token_bytes(-1) == tokenizer.token_bytes(10**9) == b""
    assert tokenizer.longest_token_bytes == max(
        len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)
    )
    assert tokenizer.token_text(-1) == tokenizer.token_text(10**9) == ""


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 49151), max_size=30), skip=st.booleans())
def test_the_table_equals_the_decoder_for_any_ids(tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    assert table_text(tokenizer, ids, skip) == tokenizer.decode(ids, skip_special_tokens=skip)


def test_special_tokens_of_the_default_model(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == [2]
    assert tokenizer.special_ids == set(range(17))
    assert tokenizer.special_tokens["eos_token"] == "<|im_end|>"
    assert tokenizer.encode("x") == tokenizer.encode("x", add_special_tokens=False)  # add_bos_token is false


def test_building_is_quick(smollm2_metadata: dict[str, Any]) -> None:
    start = time.thread_time()
    from_gguf(smollm2_metadata).byte_table  # noqa: B018
    assert time.thread_time() - start < 0.35


def test_bos_and_eos_as_the_file_says(smollm2_metadata: dict[str, Any]) -> None:
    both = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    tokenizer = from_gguf({**smollm2_metadata, **both})
    assert tokenizer.encode("x") == [1, *tokenizer.encode("x", add_special_tokens=False), 2]
    assert tokenizer.encode_batch(["x", ""]) == [tokenizer.encode("x"), [1, 2]]
    ends = {"tokenizer.ggml.eot_token_id": 0, "tokenizer.ggml.eom_token_id": 2}
    assert from_gguf({**smollm2_metadata, **ends}).eos_token_ids == [2, 0]


def test_lone_surrogates_are_refused(tokenizer: Tokenizer) -> None:
    for call in (lambda: tokenizer.encode("a\ud800"), lambda: tokenizer.encode_batch(["ok", "\udfff"])):
        with pytest.raises(InvalidArgumentError, match="lone surrogate"):
            call()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"tokenizer.ggml.pre": "martian"}, r"'martian'.*known are .*smollm"),
        ({"tokenizer.ggml.model": "rwkv"}, "'rwkv'"),
        ({"tokenizer.ggml.model": None}, "tokenizer.ggml.model is missing"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges is missing"),
        ({"tokenizer.ggml.tokens": 7}, "not a list of strings"),
        ({"tokenizer.ggml.token_type": [1]}, "1 entries for 49152 tokens"),
        ({"tokenizer.ggml.eos_token_id": 49152}, "49152, token ids run from 0 to 49151"),
        ({"tokenizer.ggml.merges": ["qqqq zzzz"]}, "do not fit the vocabulary"),
    ],
)
def test_metadata_that_cannot_be_used(
    smollm2_metadata: dict[str, Any], change: dict[str, Any], match: str
) -> None:
    metadata = {k: v for k, v in {**smollm2_metadata, **change}.items() if v is not None}
    with pytest.raises(ModelError, match=match) as caught:
        from_gguf(metadata)
    assert caught.value.param in change


def test_llama3_and_qwen2_splits_equal_the_published_tokenizers() -> None:
    """The patterns as transformers' own classes have them."""
    from transformers.integrations.gguf import gguf_tokenizer_mapping as published
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    assert split_of("qwen2").pattern == PRETOKENIZE_REGEX
    for name in ("llama-bpe", "tekken", "gpt-4o", "llama4"):
        assert split_of(name).pattern == published.GGUF_PRE_TOKENIZER_SPLITS[name]


def test_splits_cut_text_as_the_published_pre_tokenizers(tokenizer: Tokenizer) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models
    from transformers import Qwen2Tokenizer

    backend = Backend(models.BPE())
    split_of("qwen2").install(backend)
    want = Qwen2Tokenizer(vocab={}, merges=[]).backend_tokenizer
    for text in TEXTS + random_texts(100, seed=3):
        ours = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
        assert ours == want.pre_tokenizer.pre_tokenize_str(want.normalizer.normalize_str(text))


def test_a_folder_gives_the_same_tokenizer(smollm2_folder: Path, tokenizer: Tokenizer) -> None:
    other = from_folder(smollm2_folder)
    texts = TEXTS + random_texts(50, seed=4)
    assert other.encode_batch(texts) == tokenizer.encode_batch(texts)
    assert other.byte_table == tokenizer.byte_table
    assert other.special_ids == tokenizer.special_ids
    assert other.eos_token_ids == [2] and other.bos_token_id == 1
    assert other.chat_template == tokenizer.chat_template
    assert other.special_tokens == tokenizer.special_tokens


def write_folder(folder: Path, source: Path, tokenizer_config: dict[str, Any], **files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_what_the_files_of_a_folder_decide(smollm2_folder: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, processors
    from transformers import AutoTokenizer

    bos = {"__type": "AddedToken", "content": "<|im_start|>", "special": True}
    config = {"bos_token": bos, "eos_token": "<|im_end|>"}
    folder = write_folder(tmp_path / "a", smollm2_folder, config, generation_config={"eos_token_id": [0, 2]})
    starts_with_bos = Tokenizer.from_file(str(folder / "tokenizer.json"))
    starts_with_bos.post_processor = processors.TemplateProcessing(
        single=["<|im_start|>", "$A"], special_tokens=[("<|im_start|>", 1)]
    )
    starts_with_bos.save(str(folder / "tokenizer.json"))
    tokenizer = from_folder(folder)
    assert tokenizer.encode("x")[0] == 1 and len(tokenizer.encode("x")) == 2
    assert tokenizer.bos_token_id == 1 and tokenizer.eos_token_ids == [2, 0]
    assert tokenizer.chat_template is None

    assert AutoTokenizer.from_pretrained(folder).encode("x y") == tokenizer.encode("x y")

    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    folder = write_folder(
        tmp_path / "b", smollm2_folder, {"chat_template": named}, config={"eos_token_id": 0}
    )
    assert from_folder(folder).chat_template == "D"
    assert from_folder(folder).eos_token_ids == [0]
    (folder / "chat_template.jinja").write_text("J")
    assert from_folder(folder).chat_template == "J"


def test_folders_that_cannot_be_used(smollm2_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no tokenizer"):
        from_folder(tmp_path)
    folder = write_folder(tmp_path / "c", smollm2_folder, {})
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelError, match="tokenizer_config.json"):
        from_folder(folder)
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(ModelError, match=r"tokenizer\.json") as caught:
        from_folder(folder)
    assert caught.value.code == "corrupt_file"


@pytest.mark.slow
def test_slow_files_go_through_transformers(
    tmp_path: Path, tokenizer: Tokenizer, smollm2_metadata: dict[str, Any]
) -> None:
    tokens, merges = smollm2_metadata["tokenizer.ggml.tokens"], smollm2_metadata["tokenizer.ggml.merges"]
    (tmp_path / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    got = from_folder(tmp_path)
    assert got.encode("Hello world", add_special_tokens=False) == tokenizer.encode("Hello world")


LLAMA_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}


def test_sentencepiece_decoders_as_bytes() -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    tokens = ["<unk>", "▁Hello", "▁", "world", "<0xE4>", "<0xB8>", "<0xAD>", "▁▁", "中", "<0x41>", "a▁b"]
    backend = Backend(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    strip = [decoders.Strip(content=" ", left=1, right=0)]
    base = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    for decoder in (
        decoders.Sequence(base + strip),
        decoders.Sequence(base),
    ):
        backend.decoder = decoder
        tokenizer = Tokenizer(backend)
        for ids in ([1, 3, 2, 8], [2, 1], [7, 3], [3, 4, 5, 6, 9], [10, 1, 1], []):
            assert table_text(tokenizer, ids) == tokenizer.decode(ids, skip_special_tokens=False), (
                decoder,
                ids,
            )


def test_metaspace_decoders_as_bytes() -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    tokens = ["▁Hello", "▁", "world", "中", "▁▁"]
    for scheme, size in (("never", 5), ("always", 4), ("first", 4)):
        backend = Backend(models.BPE(vocab={t: i for i, t in enumerate(tokens[:size])}, merges=[]))
        backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
        tokenizer = Tokenizer(backend)
        for ids in ([0, 2, 1, 3], [1, 0], [3, 1, 1, 2], [size - 1, 0, 0], []):
            assert table_text(tokenizer, ids) == tokenizer.decode(ids, skip_special_tokens=False), (
                scheme,
                ids,
            )


@pytest.mark.parametrize(
    ("decoder", "name"),
    [
        (None, "none"),
        ({"type": "WordPiece", "prefix": "##", "cleanup": True}, "WordPiece"),
        ({"type": "BPEDecoder", "suffix": "</w>"}, "BPEDecoder"),
        ({"type": "CTC"}, "CTC"),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}, "Metaspace"),
        ({"type": "Sequence", "decoders": [*LLAMA_DECODER["decoders"], {"type": "CTC"}]}, "CTC"),
        ({"type": "Replace", "pattern": {"Regex": "x+"}, "content": ""}, "Replace"),
    ],
)
def test_a_decoder_that_bytes_cannot_express_is_named(decoder: dict[str, Any] | None, name: str) -> None:
    with pytest.raises(ModelError, match=name):
        token_bytes(["a", "▁▁"], decoder)


def test_an_added_token_outside_the_alphabet_stands_for_its_own_bytes(
    smollm2_metadata: dict[str, Any],
) -> None:
    tokens = [*smollm2_metadata["tokenizer.ggml.tokens"], "<｜end of text｜>", "日本"]
    types = [*smollm2_metadata["tokenizer.ggml.token_type"], 3, 4]
    tokenizer = from_gguf(
        {**smollm2_metadata, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    )
    ids = tokenizer.encode("a 日本<｜end of text｜>")
    assert ids[-2:] == [49153, 49152]
    assert (
        table_text(tokenizer, ids)
        == tokenizer.decode(ids, skip_special_tokens=False)
        == "a 日本<｜end of text｜>"
    )
    assert tokenizer.decode(ids) == "a 日本"
    assert decoder_of(tokenizer.backend) is not None
