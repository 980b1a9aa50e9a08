"""GGUF files: of a random model, and of another GGUF with its matrices in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from octavo_bench.models.shapes import Array, LlamaShape, tensors
from octavo_bench.models.vocabulary import vocabulary

_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}

_WRITTEN_ANEW = ("general.architecture", "general.file_type", "general.quantization_version")


def _gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        return _NAMES[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{_NAMES[rest]}"


def _interleaved(matrix: Array, heads: int) -> Array:
    """Rows of q or k in the order of GGUF's llama: the two halves of each head's rotation pairwise."""
    rows, columns = matrix.shape
    halves = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


def _describe(writer: gguf.GGUFWriter, fmt: str) -> gguf.GGMLQuantizationType:
    mostly = "ALL_F32" if fmt == "f32" else f"MOSTLY_{fmt.upper()}"
    writer.add_file_type(gguf.LlamaFileType[mostly])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    return gguf.GGMLQuantizationType[fmt.upper()]


def _add(writer: gguf.GGUFWriter, name: str, values: Array, kind: gguf.GGMLQuantizationType) -> None:
    if values.ndim < 2:
        writer.add_tensor(name, values)
    else:
        # The embedding is also the head: files of 4 and 5 bits hold it in 8.
        if name == "token_embd.weight" and kind.name.startswith(("Q4", "Q5")):
            kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_random(shape: LlamaShape, fmt: str, path: Path, seed: int = 0) -> None:
    """A random model; ``fmt`` is a GGUF tensor type such as ``q4_0`` or ``bf16``."""
    writer = gguf.GGUFWriter(path, "llama")
    kind = _describe(writer, fmt)
    writer.add_name(f"random {shape.hidden}x{shape.layers}")
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_vocab_size(shape.vocab)
    words = vocabulary(shape.vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words.tokens)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (shape.vocab - 1)])
    writer.add_token_merges([f"{a} {b}" for a, b in words.merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")
    writer.add_add_bos_token(False)
    for name, values in tensors(shape, seed):
        if name.endswith("q_proj.weight"):
            values = _interleaved(values, shape.heads)
        elif name.endswith("k_proj.weight"):
            values = _interleaved(values, shape.kv_heads)
        _add(writer, _gguf_name(name), values, kind)
    _finish(writer)


def _copy_field(writer: gguf.GGUFWriter, field: Any) -> None:
    kind = field.types[0]
    inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
    writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)


def convert(source: Path, fmt: str, path: Path) -> None:
    """Writes the model in ``source`` with every matrix in the format ``fmt``; all else stays."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture")
    if architecture is None:
        raise ValueError(f"{source} names no architecture")
    writer = gguf.GGUFWriter(path, architecture.contents())
    kind = _describe(writer, fmt)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in _WRITTEN_ANEW:
            _copy_field(writer, field)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        _add(writer, tensor.name, values.reshape(tensor.shape[::-1]), kind)
    _finish(writer)
