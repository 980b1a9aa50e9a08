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
    import json

    import numpy as np
    from safetensors.numpy import save_file

    width, inner, vocab, kv_width = 64, 128, 256, 32
    shapes = {"model.embed_tokens": (vocab, width), "lm_head": (vocab, width), "model.norm": (width,)}
    for i in range(2):
        layer = f"model.layers.{i}"
        shapes |= {f"{layer}.self_attn.{x}_proj": (kv_width if x in "kv" else width, width) for x in "qkvo"}
        shapes |= {f"{layer}.mlp.{x}_proj": (inner, width) for x in ("gate", "up")}
        shapes |= {f"{layer}.mlp.down_proj": (width, inner)}
        shapes |= {f"{layer}.{x}_layernorm": (width,) for x in ("input", "post_attention")}
    rng = np.random.default_rng(0)
    tensors = {
        f"{name}.weight": (
            1 + rng.normal(0, 0.1, shape) if len(shape) == 1 else rng.normal(0, 0.2, shape)
        ).astype("f4")
        for name, shape in shapes.items()
    }
    folder = tmp_path_factory.mktemp("tiny-llama")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "hidden_act": "silu", "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder
