"""A published Gemma 3 (Q4_K_M, a window of 512) beside transformers on its dequantized weights."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from octavo import _engine
from octavo.models.checkpoint import describe, open_checkpoint
from octavo.tokenizer import from_gguf

pytestmark = pytest.mark.slow

TOKENS, SCORED = 600, 120  # more than the window; the last of them


def reference(path: Path) -> Gemma3ForCausalLM:
    """Weights by the gguf package alone; a converter has added 1 to every norm."""
    config = Gemma3TextConfig(
        vocab_size=262144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, query_pre_attn_scalar=256, sliding_window=512,
    )  # fmt: skip
    with torch.device("meta"):
        model = Gemma3ForCausalLM(config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, config.num_hidden_layers)
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    state = {}
    for name in model.state_dict():
        if name == "lm_head.weight":
            continue
        stored = tensors[names.get_name(name, try_suffixes=(".weight",))]
        values = gguf.quants.dequantize(stored.data, stored.tensor_type).astype(np.float32)
        state[name] = torch.from_numpy(values - 1 if name.endswith("norm.weight") else values)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its buffers are not in the state
    model.model.embed_tokens.embed_scale = torch.tensor(config.hidden_size**0.5)
    return model.eval()


@torch.no_grad()
def test_it_is_as_likely_to_say_what_the_reference_says(gemma3: Path) -> None:
    checkpoint = open_checkpoint(gemma3)
    assert describe(checkpoint).windows == {0: 3, 512: 15}
    made = _engine.ModelRunner(
        checkpoint.config, checkpoint.weights, kv_dtype="f16", threads=2, max_positions=TOKENS
    )
    assert made.packed_bytes < 1.01 * checkpoint.weights.file_bytes
    text = (Path(__file__).parents[3] / "ARCHITECTURE.md").read_text()
    ids = from_gguf(checkpoint.metadata).encode(text)[:TOKENS]
    scored = list(range(TOKENS - SCORED, TOKENS))
    got = made.logits(ids, positions=scored)
    assert np.array_equal(made.logits(ids, chunk=100, positions=scored), got)
    want = reference(gemma3)(torch.tensor([ids]), logits_to_keep=SCORED).logits[0].numpy()

    def perplexity(logits: np.ndarray) -> float:
        scores = torch.log_softmax(torch.from_numpy(logits[:-1]), -1)
        return float(torch.exp(-scores[torch.arange(SCORED - 1), ids[-SCORED + 1 :]].mean()))

    assert perplexity(got) == pytest.approx(perplexity(want), rel=0.01)
    assert (got.argmax(-1) == want.argmax(-1)).mean() > 0.97
    assert np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)
