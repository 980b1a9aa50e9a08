"""Every pre-tokenizer that ``tokenizer.ggml.pre`` names gives the ids of the reference with the same vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from octavo.errors import ModelError
from octavo.tokenizer import from_gguf
from octavo.tokenizer.splits import known_names, split_of

from .corpus import FAMILY_TEXTS, TEXTS, random_texts

Reference = Callable[[dict[str, int], list[tuple[str, str]]], Any]


def by_class(module: str, name: str) -> Reference:
    """transformers' own class of the family."""

    def build(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Any:
        import importlib

        cls = getattr(importlib.import_module(f"transformers.models.{module}.tokenization_{module}"), name)
        return cls(vocab=vocab, merges=merges).backend_tokenizer

    return build


def published(name: str, ignore_merges: bool) -> Reference:
    """The pattern that transformers has for files of this name."""

    def build(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Any:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

        backend = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore_merges))
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[name]), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        return backend

    return build


def single_digits(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Any:
    """As in the tokenizer.json of SmolLM, StarCoder and Granite."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.BPE(vocab, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return backend


GPT2 = by_class("gpt2", "GPT2Tokenizer")
LLAMA3, WITHOUT_BOS = published("llama-bpe", True), published("smaug-bpe", True)
CL100K, GPT4O = published("dbrx", False), published("gpt-4o", True)
REFERENCES: dict[str, Reference] = {
    **dict.fromkeys(["default", "gpt-2", "gpt2", "phi-2", "granite-docling"], GPT2),
    **dict.fromkeys(["olmo", "mpt"], by_class("gpt_neox", "GPTNeoXTokenizer")),
    **dict.fromkeys(["smollm", "starcoder", "refact", "codeshell"], single_digits),
    "command-r": by_class("cohere", "CohereTokenizer"),
    **dict.fromkeys(["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"], LLAMA3),
    "smaug-bpe": WITHOUT_BOS,
    **dict.fromkeys(["dbrx", "glm4", "chatglm-bpe"], CL100K),
    **dict.fromkeys(
        ["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"], by_class("qwen2", "Qwen2Tokenizer")
    ),
    "qwen35": by_class("qwen3_5", "Qwen3_5Tokenizer"),
    "tekken": published("tekken", True),
    **dict.fromkeys(["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], GPT4O),
}  # fmt: skip
ONE_OF_EACH = list({id(reference): name for name, reference in REFERENCES.items()}.values())


@pytest.fixture(scope="module")
def plain(smollm2_metadata: dict[str, Any]) -> dict[str, Any]:
    """The default model's vocabulary with the one special token that all references have."""
    types = [1] * len(smollm2_metadata["tokenizer.ggml.tokens"])
    types[0] = 3  # <|endoftext|>
    kept = {k: v for k, v in smollm2_metadata.items() if "add_bos" not in k}
    return {**kept, "tokenizer.ggml.token_type": types}


def different(plain: dict[str, Any], name: str, texts: list[str]) -> list[str]:
    tokens = plain["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in plain["tokenizer.ggml.merges"]]
    want = REFERENCES[name]({t: i for i, t in enumerate(tokens)}, merges)
    want.add_special_tokens([AddedToken(tokens[0], normalized=False)])
    got = from_gguf({**plain, "tokenizer.ggml.pre": name})
    ids = [e.ids for e in want.encode_batch_fast(texts, add_special_tokens=False)]
    pairs = zip(texts, ids, got.encode_batch(texts, add_special_tokens=False), strict=True)
    return [text for text, a, b in pairs if a != b]


def test_every_name_has_a_reference() -> None:
    assert set(known_names()) == set(REFERENCES)


def test_every_name_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tokenizers.md").read_text()
    table = page.partition("names of `tokenizer.ggml.pre`")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([^`]+)`", table)) == set(known_names())


@pytest.mark.parametrize(
    "name", [*ONE_OF_EACH[:5], *(pytest.param(name, marks=pytest.mark.slow) for name in ONE_OF_EACH[5:])]
)
def test_ids_equal_the_reference(plain: dict[str, Any], name: str) -> None:
    assert different(plain, name, TEXTS + FAMILY_TEXTS + random_texts(200, seed=21)) == []


def test_names_with_one_reference_have_one_split() -> None:
    for one in ONE_OF_EACH:
        assert {split_of(n) for n, r in REFERENCES.items() if r is REFERENCES[one]} == {split_of(one)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o"])
def test_ids_equal_the_reference_on_10000_random_strings(plain: dict[str, Any], name: str) -> None:
    assert different(plain, name, random_texts(10_000, seed=23)) == []


def test_bos_where_the_file_does_not_say(plain: dict[str, Any]) -> None:
    for name, starts in (
        ("llama-bpe", True),
        ("tekken", True),
        ("smaug-bpe", False),
        ("qwen2", False),
        ("dbrx", False),
    ):
        ids = from_gguf({**plain, "tokenizer.ggml.pre": name}).encode("x")
        assert (ids[0] == 1) == starts, name


def test_an_unknown_name_is_refused_with_those_known(plain: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"'martian'.*known are .*gpt-4o.*tekken") as caught:
        from_gguf({**plain, "tokenizer.ggml.pre": "martian"})
    assert (caught.value.code, caught.value.param) == ("unsupported", "tokenizer.ggml.pre")
