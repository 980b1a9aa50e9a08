"""Caches of 8 bits: transformers with keys and values rounded in the same way, and the same bits for any company."""

import numpy as np
import pytest
import torch
from tiny_models import random_ids, reference_logits, save, tiny_llama
from transformers import AttentionInterface

from octavo import LLM, SamplingParams, _engine
from octavo.errors import OctavoError
from octavo.models.checkpoint import describe, open_checkpoint

LIMIT = {"int8": 127.0, "fp8": 448.0}


def rounded(x: torch.Tensor, kind: str) -> torch.Tensor:
    """x [..., head_dim] as codes times one scale for each token and head."""
    top = x.abs().amax(-1, keepdim=True)
    codes = x * (LIMIT[kind] / top)
    codes = codes.round() if kind == "int8" else codes.to(torch.float8_e4m3fn).float()
    return codes * (top / LIMIT[kind])


def attention_with(kind: str):
    def attend(module, query, key, value, mask, scaling=None, **_):
        key, value = (
            rounded(x, kind).repeat_interleave(module.num_key_value_groups, 1) for x in (key, value)
        )
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling
        )
        return out.transpose(1, 2).contiguous(), None

    return attend


for name in LIMIT:
    AttentionInterface.register(f"{name}_cache", attention_with(name))


def runner(checkpoint, kind, **options):
    return _engine.ModelRunner(
        checkpoint.config, checkpoint.weights, max_positions=512, kv_dtype=kind, **options
    )


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512vnni"])
@pytest.mark.parametrize("kind", LIMIT)
@pytest.mark.parametrize("block_size", [8, 16])
def test_logits_are_those_of_a_cache_rounded_alike(tmp_path, kind, isa, block_size):
    model = tiny_llama(head_dim=24)  # a head that fills no whole vectors
    checkpoint = open_checkpoint(save(model, tmp_path))
    try:
        run = runner(checkpoint, kind, isa=isa, block_size=block_size)
    except OctavoError:
        pytest.skip(f"this machine has no {isa}")
    ids = random_ids(200)
    exact = reference_logits(model, ids)
    model.set_attn_implementation(f"{kind}_cache")
    want = reference_logits(model, ids)
    got = run.logits(ids)
    # A value on the edge between two codes may fall to either side.
    assert np.quantile(np.abs(got - want), 0.99) < 2e-3
    assert np.abs(got - want).max() < np.abs(exact - want).max() / 2
    for chunk in (1, 37):
        assert np.array_equal(run.logits(ids, chunk=chunk), got)
    assert np.array_equal(
        runner(checkpoint, kind, isa=isa, block_size=block_size, threads=3).logits(ids), got
    )


@pytest.mark.parametrize("kind", LIMIT)
def test_a_shared_beginning_gives_the_same_tokens(tmp_path, kind):
    folder = save(tiny_llama(), tmp_path)
    options = {"max_tokens": 12, "temperature": 0.0, "logprobs": 1}
    prompts = [[*random_ids(57), i] for i in range(4)]  # they part inside a block, which is copied

    def run(prompts):
        with LLM(
            str(folder), kv_cache_dtype=kind, skip_tokenizer_init=True, num_gpu_blocks_override=64
        ) as llm:
            outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], SamplingParams(**options))
            return [(list(o.outputs[0].token_ids), o.outputs[0].cumulative_logprob) for o in outputs]

    assert run(prompts) == [run([p])[0] for p in prompts]


def test_bytes_of_a_token(tmp_path):
    checkpoint = open_checkpoint(save(tiny_llama(), tmp_path))  # 3 layers of 2 KV heads of 16
    per_token = {kind: describe(checkpoint, kind).kv_bytes_per_token for kind in ("f16", "int8", "fp8")}
    assert per_token == {"f16": 3 * 2 * 2 * 32, "int8": 3 * 2 * 2 * 20, "fp8": 3 * 2 * 2 * 20}
    limits = {"block_size": 16, "max_num_seqs": 1, "max_num_batched_tokens": 16}
    for kind, expected in per_token.items():
        groups = _engine.kv_groups(checkpoint.config, kv_dtype=kind, **limits)
        assert sum(size for size, _ in groups) == 16 * expected
