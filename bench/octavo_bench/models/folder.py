"""A random model as a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from octavo_bench.models.shapes import LlamaShape, tensors
from octavo_bench.models.vocabulary import END, vocabulary

DTYPES = {
    "f32": (torch.float32, "float32"),
    "f16": (torch.float16, "float16"),
    "bf16": (torch.bfloat16, "bfloat16"),
}


def write_random(shape: LlamaShape, fmt: str, path: Path, seed: int = 0) -> None:
    """config.json, model.safetensors in ``fmt`` and a tokenizer."""
    dtype, name = DTYPES[fmt]
    path.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": name,
    }
    (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    weights = {key: torch.from_numpy(values).to(dtype) for key, values in tensors(shape, seed)}
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    words = vocabulary(shape.vocab)
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(words.tokens)}, words.merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END}
    (path / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
