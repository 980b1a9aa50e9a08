"""Writes what a GGUF file holds as a float32 model folder for transformers, by the gguf package alone.

The folder is the reference that the engine is compared with, so nothing of octavo takes part in making it.

    python tests/reference/export.py MODEL.gguf FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_MODEL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def export(path: Path, folder: Path) -> None:
    """Dequantizes every tensor to float32 and saves weights, configuration and tokenizer."""
    reader = gguf.GGUFReader(path)

    def field(name: str, default: object = None) -> object:
        found = reader.fields.get(name)
        return default if found is None else found.contents()

    if field("general.architecture") != "llama":
        raise SystemExit(f"{path} is not a llama model")
    heads = field("llama.attention.head_count")
    kv_heads = field("llama.attention.head_count_kv", heads)
    state = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        module, kind = tensor.name.rsplit(".", 1)
        if module.startswith("blk."):
            _, layer, short = module.split(".")
            if short in ("attn_q", "attn_k"):
                values = _halves(values, heads if short == "attn_q" else kv_heads)
            name = f"model.layers.{layer}.{_LAYER_NAMES[short]}.{kind}"
        else:
            name = f"{_MODEL_NAMES[module]}.{kind}"
        state[name] = torch.from_numpy(np.array(values))
    tied = "lm_head.weight" not in state
    config = LlamaConfig(
        vocab_size=state["model.embed_tokens.weight"].shape[0],
        hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base", 10000.0)},
        tie_word_embeddings=tied,
        bos_token_id=field("tokenizer.ggml.bos_token_id"),
        eos_token_id=field("tokenizer.ggml.eos_token_id"),
    )
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or set(missing) - ({"lm_head.weight"} if tied else set()):
        raise SystemExit(f"{path}: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)


def _halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undoes the interleaving of the two halves of each head."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
