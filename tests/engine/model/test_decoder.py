"""The decoder against transformers in float32, on small random Llamas of every shape and file it supports."""

import gc

import gguf
import numpy as np
import pytest
import torch
from tiny_models import LLAMA3_ROPE, random_ids, reference_logits, save, save_gguf, tiny_llama

from octavo import _engine
from octavo.errors import InvalidArgumentError, ModelError
from octavo.models.checkpoint import open_checkpoint

Q = gguf.GGMLQuantizationType
QUANTIZED = [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0]


F32_ACTIVATIONS = "baseline"  # the best instruction set may round those that meet bf16 weights


def runner(path, **options):
    checkpoint = open_checkpoint(path)
    return _engine.ModelRunner(checkpoint.config, checkpoint.weights, max_positions=512, **options)


SHAPES = {
    "grouped heads": {},
    "one head each": {"num_key_value_heads": 4},
    "one kv head": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "wide heads": {"head_dim": 32},
    "narrow heads": {"head_dim": 8},
    "attention bias": {"attention_bias": True},
    "mlp bias": {"mlp_bias": True},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "llama3 rope": {"rope_parameters": LLAMA3_ROPE},
    "odd widths": {
        "hidden_size": 72,
        "intermediate_size": 100,
        "vocab_size": 301,
        "num_attention_heads": 6,
        "head_dim": 12,
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_the_reference(tmp_path, shape):
    model = tiny_llama(**SHAPES[shape])
    ids = random_ids(200)
    got = runner(save(model, tmp_path)).logits(ids)
    np.testing.assert_allclose(got, reference_logits(model, ids), atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shards", ["single", "sharded"])
def test_half_precision_files_are_read_exactly(tmp_path, dtype, shards):
    model = tiny_llama(dtype)
    options = {"max_shard_size": "40KB"} if shards == "sharded" else {}
    save(model, tmp_path, dtype, **options)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shards == "sharded")
    ids = random_ids(100)
    want = reference_logits(model, ids)
    exact = runner(tmp_path, isa=F32_ACTIVATIONS).logits(ids)
    np.testing.assert_allclose(exact, want, atol=1e-3, rtol=0)
    got = runner(tmp_path).logits(ids)
    assert np.linalg.norm(got - want) < 0.01 * np.linalg.norm(want)


def test_tensors_of_the_caller_give_the_same_bits_as_the_file(tmp_path):
    model = tiny_llama()
    checkpoint = open_checkpoint(save(model, tmp_path))
    ids = random_ids(50)
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    handed = _engine.ModelRunner(checkpoint.config, _engine.WeightFiles.from_tensors(tensors))
    assert np.array_equal(handed.logits(ids), runner(tmp_path).logits(ids))


@pytest.mark.parametrize("kv_dtype", ["f16", "bf16"])
def test_a_narrower_cache_stays_near_the_reference(tmp_path, kv_dtype):
    model = tiny_llama()
    ids = random_ids(100)
    got, want = runner(save(model, tmp_path), kv_dtype=kv_dtype).logits(ids), reference_logits(model, ids)
    assert np.abs(got - want).max() < (0.08 if kv_dtype == "f16" else 0.15)


@pytest.mark.parametrize("fmt", ["f32", "bf16", "q4_1", "q8_0"])
def test_same_bits_in_chunks_of_any_size_and_with_any_threads(tmp_path, fmt):
    model = tiny_llama()
    path = tmp_path / "m.gguf"
    save_gguf(model, path, Q[fmt.upper()])
    ids = random_ids(300)
    whole = runner(path).logits(ids)
    for options, chunk in [
        ({}, 1),
        ({}, 7),
        ({"threads": 2}, 16),
        ({"threads": 2, "block_size": 8}, 300),
        ({}, 129),
    ]:
        assert np.array_equal(runner(path, **options).logits(ids, chunk=chunk), whole), (options, chunk)


def test_logits_of_some_positions_are_the_same_bits(tmp_path):
    made = runner(save(tiny_llama(), tmp_path))
    ids = random_ids(64)
    whole = made.logits(ids)
    for positions in ([63], [0], [3, 4, 5], [0, 9, 10, 40], []):
        assert np.array_equal(made.logits(ids, positions=positions), whole[positions])


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.BF16, *QUANTIZED], ids=lambda k: k.name)
def test_a_gguf_is_read_exactly_in_every_format(tmp_path, kind):
    path = tmp_path / "m.gguf"
    held = save_gguf(tiny_llama(), path, kind)
    made = runner(path, isa=F32_ACTIVATIONS if kind == Q.BF16 else "")
    for name, tensor in held.state_dict().items():
        want = tensor.numpy()
        np.testing.assert_array_equal(made.dequantized(name).reshape(want.shape), want, err_msg=name)
    ids = random_ids(100)
    got, want = made.logits(ids), reference_logits(held, ids)
    if kind not in QUANTIZED:
        np.testing.assert_allclose(got, want, atol=1e-3, rtol=0)
    else:  # activations are rounded to 8 bits before each product
        assert np.linalg.norm(got - want) < 0.05 * np.linalg.norm(want)


def test_gguf_biases_and_a_tied_head(tmp_path):
    held = save_gguf(tiny_llama(attention_bias=True, tie_word_embeddings=True), tmp_path / "m.gguf", Q.F32)
    ids = random_ids(80)
    np.testing.assert_allclose(
        runner(tmp_path / "m.gguf").logits(ids), reference_logits(held, ids), atol=1e-3, rtol=0
    )


def test_gguf_rope_factors_are_the_llama3_scaling(tmp_path):
    model = tiny_llama(rope_parameters=LLAMA3_ROPE)
    plain = 1.0 / (500000.0 ** (torch.arange(0, 16, 2).float() / 16))
    factors = (plain / model.model.rotary_emb.inv_freq).numpy()
    assert factors.max() > 7 and factors.min() == 1
    save_gguf(model, tmp_path / "m.gguf", Q.F32, rope_factors=factors)
    ids = random_ids(200)
    np.testing.assert_allclose(
        runner(tmp_path / "m.gguf").logits(ids), reference_logits(model, ids), atol=1e-3, rtol=0
    )


def tensors_of(model):
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    model = tiny_llama()
    return open_checkpoint(save(model, tmp_path_factory.mktemp("tiny"))).config, tensors_of(model)


def build(config, tensors):
    return _engine.ModelRunner(config, _engine.WeightFiles.from_tensors(tensors))


def test_a_missing_tensor_is_named(tiny):
    config, tensors = tiny
    name = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(ModelError, match=f"has no tensor {name}") as e:
        build(config, {k: v for k, v in tensors.items() if k != name})
    assert (e.value.code, e.value.param) == ("not_found", name)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(tiny):
    config, tensors = tiny
    name = "model.layers.0.self_attn.k_proj.weight"
    with pytest.raises(ModelError, match=r"has shape \[31, 64\], the configuration asks for \[32, 64\]") as e:
        build(config, tensors | {name: torch.zeros(31, 64)})
    assert (e.value.code, e.value.param) == ("corrupt_file", name)


def test_a_tensor_that_nothing_reads_is_refused(tiny):
    config, tensors = tiny
    with pytest.raises(
        ModelError, match=r"has a tensor model.layers.0.self_attn.q_norm.weight that architecture llama"
    ):
        build(config, tensors | {"model.layers.0.self_attn.q_norm.weight": torch.ones(16)})
    build(config, tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})


def test_a_head_beside_a_tied_embedding_counts_only_where_it_differs(tmp_path):
    model = tiny_llama(tie_word_embeddings=True)
    config = open_checkpoint(save(model, tmp_path)).config
    ids = random_ids(20)
    tied = build(
        config, tensors_of(model) | {"lm_head.weight": model.model.embed_tokens.weight.detach().clone()}
    )
    np.testing.assert_allclose(tied.logits(ids), reference_logits(model, ids), atol=1e-3, rtol=0)
    other = build(
        config, tensors_of(model) | {"lm_head.weight": 2 * model.model.embed_tokens.weight.detach()}
    )
    np.testing.assert_allclose(other.logits(ids), 2 * reference_logits(model, ids), atol=2e-3, rtol=0)
    assert other.packed_bytes > tied.packed_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dense_weights_can_be_viewed_where_they_lie(tmp_path, dtype):
    model = tiny_llama(dtype)
    made = runner(save(model, tmp_path, dtype))
    for name, tensor in model.state_dict().items():
        view = torch.from_dlpack(made.weight_view(name))
        if tensor.ndim == 1:
            assert view.dtype == torch.float32 and torch.equal(view, tensor)
        else:  # panels of 16 rows
            assert view.dtype == dtype and view.shape == (-(-len(tensor) // 16), 2, 8, tensor.shape[1])
            assert torch.equal(view.flatten(0, 2)[: len(tensor)].float(), tensor), name


def test_a_view_keeps_the_weights_alive(tmp_path):
    model = tiny_llama()
    view = torch.from_dlpack(runner(save(model, tmp_path)).weight_view("model.norm.weight"))
    gc.collect()
    assert torch.equal(view, model.model.norm.weight.detach())


def test_a_quantized_weight_has_no_view(tmp_path):
    save_gguf(tiny_llama(), tmp_path / "m.gguf", Q.Q4_1)
    with pytest.raises(
        ModelError, match=r"model.layers.0.mlp.up_proj.weight is packed as q4_1 and has no view"
    ):
        runner(tmp_path / "m.gguf").weight_view("model.layers.0.mlp.up_proj.weight")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_layers", 0, "num_layers must be from 1"),
        ("kv_heads", 3, r"kv_heads must divide heads \(4\), got 3"),
        ("head_dim", 2**30, "head_dim must be from 1"),
        ("hidden", -5, "hidden must be from 1 to 16777216, got -5"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_by_field(tmp_path, field, value, words):
    checkpoint = open_checkpoint(save(tiny_llama(), tmp_path))
    setattr(checkpoint.config, field, value)
    with pytest.raises(InvalidArgumentError, match=words) as e:
        _engine.ModelRunner(checkpoint.config, checkpoint.weights)
    assert e.value.param == field
