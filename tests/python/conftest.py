from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2: Path) -> dict[str, Any]:
    from octavo import _engine

    return dict(_engine.GgufFile(str(smollm2)).metadata())


@pytest.fixture(scope="session")
def tokenizer(smollm2_metadata: dict[str, Any]) -> Any:
    from octavo.tokenizer import from_gguf

    return from_gguf(smollm2_metadata)


@pytest.fixture(scope="session")
def smollm2_folder(smollm2_metadata: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model's tokenizer as a folder in Hugging Face's layout, written without octavo's code."""
    import json

    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("smollm2-folder")
    meta = {k.removeprefix("tokenizer.ggml."): v for k, v in smollm2_metadata.items()}
    backend = Tokenizer(
        models.BPE(
            vocab={t: i for i, t in enumerate(meta["tokens"])},
            merges=[tuple(m.split(" ")) for m in meta["merges"]],
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    specials = [t for t, kind in zip(meta["tokens"], meta["token_type"], strict=True) if kind == 3]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<|im_start|>",
                "eos_token": "<|im_end|>",
                "unk_token": "<|endoftext|>",
                "pad_token": "<|im_end|>",
                "chat_template": smollm2_metadata["tokenizer.chat_template"],
                "clean_up_tokenization_spaces": False,
            }
        )
    )
    return folder


@pytest.fixture(scope="session")
def reference(smollm2_folder: Path) -> Any:
    """transformers' tokenizer of the default model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2_folder)


@pytest.fixture(scope="session")
def llm() -> Any:
    """The default model, running, with a cache of 4,096 tokens."""
    from octavo import LLM

    with LLM(max_model_len=1024, num_gpu_blocks_override=256, max_num_seqs=32) as running:
        yield running


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Llama of random float32 weights and no tokenizer."""
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=None,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    folder = tmp_path_factory.mktemp("tiny-llama")
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    return folder
