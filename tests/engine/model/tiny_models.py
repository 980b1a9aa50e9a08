"""Small random Llamas made by transformers: the reference itself, and the files that the engine reads."""

from __future__ import annotations

import json

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def tiny_llama(dtype=torch.float32, **fields) -> LlamaForCausalLM:
    """A model in float32 whose weights are exact in ``dtype``, with logits of a realistic spread."""
    base = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.15,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(17)
    model = LlamaForCausalLM(LlamaConfig(**(base | fields))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
            parameter.copy_(
                parameter.to(dtype)
            )  # not model.to(dtype): that would round the RoPE frequencies too
    return model


@torch.no_grad()
def reference_logits(model: LlamaForCausalLM, ids) -> np.ndarray:
    return model(torch.tensor([list(ids)])).logits[0].numpy()


def random_ids(n: int, vocab: int = 300) -> list[int]:
    return np.random.default_rng(n).integers(0, vocab, n).tolist()


def save(model: LlamaForCausalLM, folder, dtype=torch.float32, **options):
    """A model folder with the weights in ``dtype``; the model itself stays as it is."""
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.to(dtype).save_pretrained(folder, **options)
    return folder


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """The order of q and k rows in a GGUF file of the llama architecture: the halves of each head interleaved."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(rows.shape)


_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        module, kind = name.rsplit(".", 1)
        short = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[module]
        return f"{short}.{kind}"
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_GGUF_NAMES[module]}.{kind}"


def save_gguf(
    model: LlamaForCausalLM, path, kind: gguf.GGMLQuantizationType, rope_factors=None
) -> LlamaForCausalLM:
    """Writes a GGUF with matrices of ``kind`` (vectors stay f32); gives the model with the values of the file."""
    c = model.config
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(c.num_hidden_layers)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_context_length(c.max_position_embeddings)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_dimension_count(c.head_dim)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_vocab_size(c.vocab_size)
    held = {}
    for name, tensor in model.state_dict().items():
        if c.tie_word_embeddings and name == "lm_head.weight":
            continue
        values = tensor.numpy()
        heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}.get(name.split(".")[-2])
        file_kind = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        raw = gguf.quants.quantize(interleave(values, heads) if heads else values, file_kind)
        w.add_tensor(gguf_name(name), raw, raw_dtype=file_kind)
        held[name] = torch.from_numpy(
            gguf.quants.dequantize(gguf.quants.quantize(values, file_kind), file_kind)
        )
    if rope_factors is not None:
        w.add_tensor("rope_freqs.weight", np.asarray(rope_factors, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    copy = LlamaForCausalLM(c).eval()
    copy.load_state_dict(held, strict=False)
    copy.tie_weights()
    return copy


def config_json(folder) -> dict:
    return json.loads((folder / "config.json").read_text())
