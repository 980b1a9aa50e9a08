"""`LLM` on the emulated GPU: what its arguments ask for there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_engine import BACKEND, require_backend

from octavo import LLM, SamplingParams

pytestmark = pytest.mark.slow
WIDTH, INNER, VOCAB, KV_WIDTH = 64, 128, 96, 32
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": WIDTH,
    "intermediate_size": INNER, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "hidden_act": "silu", "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
PROMPTS = [[5, 6, 7], [5, 6, 7, 8, 9, 10, 11], [90, 3]]


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (VOCAB, WIDTH), "model.norm": (WIDTH,)}
    for i in range(2):
        layer = f"model.layers.{i}"
        shapes |= {f"{layer}.self_attn.{x}_proj": (KV_WIDTH if x in "kv" else WIDTH, WIDTH) for x in "qkvo"}
        shapes |= {f"{layer}.mlp.{x}_proj": (INNER, WIDTH) for x in ("gate", "up")}
        shapes |= {f"{layer}.mlp.down_proj": (WIDTH, INNER)}
        shapes |= {f"{layer}.{x}_layernorm": (WIDTH,) for x in ("input", "post_attention")}
    return {
        f"{name}.weight": rng.normal(len(shape) == 1, 0.3, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def llm(device: str = BACKEND, **arguments: Any) -> LLM:
    require_backend()
    options = {"num_gpu_blocks_override": 64, "max_num_seqs": 8} | arguments
    return LLM(CONFIG, weights=weights(), skip_tokenizer_init=True, device=device, **options)


def told(running: LLM, max_tokens: int = 12) -> list[Any]:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, logprobs=2)
    outputs = running.generate(PROMPTS, params)
    return [(output.outputs[0].token_ids, output.outputs[0].logprobs) for output in outputs]


def test_enforce_eager_records_no_graphs_and_changes_no_answer() -> None:
    with llm() as recorded, llm(enforce_eager=True) as eager:
        assert recorded.model.engine.info()["graphs"] is True
        assert eager.model.engine.info()["graphs"] is False
        assert told(eager) == told(recorded)


def test_a_cpu_has_no_graphs() -> None:
    with llm("cpu") as running:
        assert running.model.engine.info()["graphs"] is False


@pytest.mark.parametrize("quantization", ["q8", "q4"])
def test_matrices_are_quantized_while_they_are_loaded_as_on_the_cpu(quantization: str) -> None:
    ids = np.random.default_rng(1).integers(0, VOCAB, 60).tolist()
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    scores, bytes_of = {}, {}
    for device, kind in [("cpu", quantization), (BACKEND, quantization), (BACKEND, None)]:
        with llm(device, quantization=kind, isa="baseline") as running:  # activations of 16 bits
            entries = running.generate([ids], params)[0].prompt_logprobs
            assert entries is not None
            scores[device, kind] = np.array(
                [entry[token].logprob for entry, token in zip(entries, ids, strict=True) if entry]
            )
            bytes_of[device, kind] = running.model.engine.info()["weight_bytes"]
    quantized = scores[BACKEND, quantization]
    off_by_quantizing = np.abs(quantized - scores[BACKEND, None]).max()
    assert np.abs(quantized - scores["cpu", quantization]).max() < 0.2 * off_by_quantizing
    assert bytes_of[BACKEND, quantization] < 0.4 * bytes_of[BACKEND, None]
