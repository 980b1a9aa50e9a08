"""config.json and GGUF metadata become one description; what cannot be honoured is refused by name."""

import json
import math

import pytest
from transformers import LlamaConfig, MistralConfig

from octavo import _engine
from octavo.errors import ModelError
from octavo.models.config import from_hugging_face
from octavo.models.gguf import from_gguf

Scaling = _engine.RopeConfig.Scaling


def llama(**fields):
    """config.json of a small Llama as transformers writes it."""
    base = dict(
        vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    return json.loads(LlamaConfig(**(base | fields)).to_json_string(use_diff=False))


def test_a_llama_config_is_read_field_by_field(recwarn):
    c = from_hugging_face(llama(bos_token_id=7, eos_token_id=[8, 9], tie_word_embeddings=True, mlp_bias=True))
    assert (c.architecture, c.num_layers, c.hidden, c.intermediate) == ("llama", 3, 64, 96)
    assert (c.heads, c.kv_heads, c.head_dim, c.vocab, c.max_positions) == (4, 2, 16, 300, 512)
    assert c.norm_eps == pytest.approx(1e-5)
    assert (c.tied_embeddings, c.attention_bias, c.mlp_bias) == (True, False, True)
    assert (c.bos_token_id, c.eos_token_ids) == (7, [8, 9])
    assert (c.rope.rotary_dim, c.rope.scaling, c.rope.theta) == (16, Scaling.NONE, 10000)
    assert not recwarn.list


def test_head_dim_may_differ_from_hidden_over_heads():
    assert from_hugging_face(llama(head_dim=32)).head_dim == 32


def test_end_tokens_of_the_generation_config_come_first():
    assert from_hugging_face(llama(eos_token_id=2), {"eos_token_id": [5, 6]}).eos_token_ids == [5, 6]
    assert from_hugging_face(llama(eos_token_id=2), {"temperature": 1.0}).eos_token_ids == [2]


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


@pytest.mark.parametrize("style", ["rope_parameters", "rope_scaling", "type"])
def test_rope_of_old_and_new_transformers_reads_alike(style):
    config = llama()
    del config["rope_parameters"]
    if style == "rope_parameters":
        config["rope_parameters"] = {"rope_type": "llama3", "rope_theta": 5e5} | LLAMA3
    else:
        config["rope_theta"] = 5e5
        config["rope_scaling"] = {"rope_type" if style == "rope_scaling" else "type": "llama3"} | LLAMA3
    rope = from_hugging_face(config).rope
    assert (rope.scaling, rope.theta, rope.factor) == (Scaling.LLAMA3, 5e5, 8)
    assert (rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions) == (1, 4, 256)


@pytest.mark.parametrize(("given", "windows"), [({"sliding_window": None}, []), ({"sliding_window": 128}, [128] * 3),
                                               ({}, [4096] * 3)])  # fmt: skip
def test_a_mistral_may_have_a_window(given, windows):
    fields = {k: v for k, v in llama().items() if k not in ("model_type", "rope_parameters", "architectures")}
    config = MistralConfig(**fields | {"architectures": ["MistralForCausalLM"]})
    described = json.loads(config.to_json_string(use_diff=False))
    del described["sliding_window"]
    c = from_hugging_face(described | {"max_position_embeddings": 8192} | given)
    assert (c.architecture, [layer.window for layer in c.layers]) == ("mistral", windows)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("architectures", ["MambaForCausalLM"], "MambaForCausalLM is not supported; supported: LlamaForCausalLM"),
        ("architectures", None, "architecture None is not supported"),
        ("hidden_act", "gelu", "hidden_act is 'gelu'; supported: 'silu'"),
        ("sliding_window", 128, "sliding_window is 128; supported: None"),
    ("rope_parameters", {"rope_type": "ntk", "factor": 2.0}, "rope_type is 'ntk'; supported: 'default'"),
    ("rope_parameters", {"rope_type": "longrope", "short_factor": [1.0]}, "short_factor must have 8 numbers, got 1"),
        ("rope_parameters", {"rope_type": "linear"}, "factor is missing"),
        ("rope_parameters", {"rope_type": "linear", "factor": 2.0, "beta": 1}, "beta is 1, a field rope type linear"),
        ("rope_parameters", {"rope_type": "default", "factor": 2.0}, "factor is 2.0; supported: 1.0"),
        ("rope_parameters", {"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}, "high_freq_factor must exceed"),
        ("rope_parameters", [1], "rope_parameters must be an object"),
        ("hidden_size", "64", "hidden_size must be an integer from 1 to 1048576, got '64'"),
        ("hidden_size", True, "hidden_size must be an integer"),
        ("num_hidden_layers", 0, "num_hidden_layers must be an integer from 1"),
        ("num_hidden_layers", None, "num_hidden_layers is missing"),
        ("num_key_value_heads", 3, "num_key_value_heads must divide the 4 heads, got 3"),
        ("rms_norm_eps", -1.0, "rms_norm_eps must be a finite number above 0"),
        ("tie_word_embeddings", "yes", "tie_word_embeddings must be true or false"),
        ("eos_token_id", -1, "eos_token_id must be a token id"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_field_and_value(field, value, words):
    with pytest.raises(ModelError, match=words):
        from_hugging_face(llama() | {field: value})


# What published models have in config.json, as far as it differs from LlamaConfig's small one above.
_OLDER = {
    "rope_scaling": None,
    "rope_theta": 1e6,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0",
}
_LONGROPE = {"type": "longrope", "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}
_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 16,
}
PUBLISHED = {
    "Gemma3ForCausalLM": {
        "cache_implementation": "hybrid", "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000, "sliding_window": 64, "sliding_window_pattern": 2, "head_dim": 256,
        "attn_logit_softcapping": None, "final_logit_softcapping": None, "hidden_act": None,
    },
    "Phi3ForCausalLM": {
        "embd_pdrop": 0.0, "resid_pdrop": 0.0, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False,
        "original_max_position_embeddings": 64, "partial_rotary_factor": 0.75, "rope_scaling": _LONGROPE,
        "sliding_window": 262144,
    },
    "GptOssForCausalLM": {
        "experts_per_token": 2, "num_experts_per_tok": 2, "num_local_experts": 4, "initial_context_length": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 128,
        "output_router_logits": False, "router_aux_loss_coef": 0.9, "swiglu_limit": 7.0, "rope_scaling": _YARN,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        "attention_bias": True,
    },
    "Qwen2ForCausalLM": {"max_window_layers": 21, "sliding_window": 32768, "use_sliding_window": False},
    "Qwen3MoeForCausalLM": {
        "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 32, "norm_topk_prob": True,
        "num_experts": 8, "num_experts_per_tok": 2, "max_window_layers": 48, "sliding_window": None,
        "use_sliding_window": False, "output_router_logits": False, "router_aux_loss_coef": 0.001,
    },
    "OlmoeForCausalLM": {
        "clip_qkv": None, "norm_topk_prob": False, "num_experts": 8, "num_experts_per_tok": 2,
        "output_router_logits": False, "router_aux_loss_coef": 0.01,
    },
    "SmolLM3ForCausalLM": {
        "layer_types": ["full_attention"] * 3, "no_rope_layers": [1, 1, 0], "no_rope_layer_interval": 4,
        "max_window_layers": 28, "sliding_window": None, "use_sliding_window": False, "pretraining_tp": 2,
    },
    "Glm4ForCausalLM": {"partial_rotary_factor": 0.5, "attention_bias": False, "eos_token_id": [1, 2, 3]},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_of_the_older_style_is_read_without_a_word(name, recwarn):
    base = llama()
    del base["rope_parameters"]
    c = from_hugging_face(base | _OLDER | {"architectures": [name], "head_dim": 16} | PUBLISHED[name])
    assert not recwarn.list
    windows = [layer.window for layer in c.layers]
    if name == "Gemma3ForCausalLM":
        assert windows == [64, 0, 64]
        assert (c.rope.theta, c.local_rope.theta, c.attention_scale) == (1e6, 1e4, 1 / 16)
    if name == "Phi3ForCausalLM":  # a window that no text outgrows is none
        assert windows == [0, 0, 0]
        assert (c.rope.rotary_dim, c.rope.scaling, c.rope.original_max_positions) == (
            12,
            Scaling.LONGROPE,
            64,
        )
        assert c.rope.attention_factor == pytest.approx((1 + math.log(8) / math.log(64)) ** 0.5)
    if name == "GptOssForCausalLM":
        assert windows == [128, 0, 128]
        assert (c.rope.scaling, c.rope.truncate, c.rope.factor) == (Scaling.YARN, False, 32)
        assert c.rope.attention_factor == pytest.approx(0.1 * math.log(32) + 1)
    if name in ("Qwen2ForCausalLM", "SmolLM3ForCausalLM"):
        assert not any(windows)
    if name == "Qwen3MoeForCausalLM":
        assert (c.moe.experts, c.moe.experts_per_token, c.moe.intermediate, c.moe.normalized) == (
            8,
            2,
            32,
            True,
        )
    if name == "SmolLM3ForCausalLM":
        kinds = _engine.LayerRope
        assert [layer.rope for layer in c.layers] == [kinds.GLOBAL, kinds.GLOBAL, kinds.NONE]
    if name == "Glm4ForCausalLM":
        assert (c.rope.rotary_dim, c.rope_interleaved, c.attention_bias) == (8, True, False)


def test_an_unknown_field_is_warned_about():
    with pytest.warns(UserWarning, match="not used: frobnicate"):
        from_hugging_face(llama() | {"frobnicate": 3})


GGUF = {
    "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 8,
    "llama.feed_forward_length": 16, "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1,
    "llama.context_length": 128, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": 4,
    "llama.rope.freq_base": 5e5, "llama.vocab_size": 40,
}  # fmt: skip


def weights(**shapes):
    import numpy as np

    names = {"model.embed_tokens.weight": (48, 8)} | {k.replace("__", "."): v for k, v in shapes.items()}
    return _engine.WeightFiles.from_tensors({k: np.full(v, 2, np.float32) for k, v in names.items()})


def test_gguf_metadata_is_read_field_by_field():
    ids = {"bos": 1, "eos": 2, "eot": 5, "eom": 2}
    c = from_gguf(GGUF | {f"tokenizer.ggml.{k}_token_id": v for k, v in ids.items()}, weights())
    assert (c.num_layers, c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim) == (2, 8, 16, 2, 1, 4)
    assert (c.vocab, c.max_positions, c.rope.theta, c.rope.rotary_dim) == (48, 128, 5e5, 4)
    assert (c.bos_token_id, c.eos_token_ids) == (1, [2, 5])
    assert c.tied_embeddings
    assert not from_gguf(GGUF, weights(lm_head__weight=(48, 8))).tied_embeddings


def test_gguf_rope_factors_and_linear_scaling():
    assert from_gguf(GGUF, weights(rope_freqs__weight=(2,))).rope.freq_factors == [2, 2]
    for scale in (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        {"llama.rope.scale_linear": 4.0},
    ):
        rope = from_gguf(GGUF | scale, weights()).rope
        assert (rope.scaling, rope.factor) == (Scaling.LINEAR, 4)
    off = {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}
    assert from_gguf(GGUF | off, weights()).rope.scaling == Scaling.NONE


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("general.architecture", "mamba", "general.architecture is 'mamba'; supported: 'llama'"),
        ("llama.block_count", None, "llama.block_count is missing"),
        ("llama.rope.scaling.type", "ntk", "llama.rope.scaling.type is 'ntk'"),
        ("llama.rope.scaling.type", "longrope", "the file has no rope_factors_long.weight"),
        ("llama.rope.dimension_count", 6, "llama.rope.dimension_count must be an integer from 2 to 4, got 6"),
        ("llama.attention.value_length", 8, "llama.attention.value_length is 8; supported: 4"),
        ("llama.expert_count", -8, "llama.expert_count must be an integer from 0"),
        ("llama.attention.sliding_window", -1, "llama.attention.sliding_window must be an integer from 0"),
        ("llama.logit_scale", 0.5, "llama.logit_scale is 0.5, a key octavo does not know for llama"),
    ],
)
def test_gguf_metadata_that_cannot_be_honoured_is_refused_by_key_and_value(key, value, words):
    with pytest.raises(ModelError, match=words) as e:
        from_gguf(GGUF | {key: value}, weights())
    assert e.value.param == key


def test_a_gguf_whose_vocabulary_contradicts_its_tokens_or_rows_is_refused():
    tokens = {"tokenizer.ggml.tokens": [str(i) for i in range(40)]}
    for size in (40, 44, 48):  # the embedding may have more rows than there are tokens
        assert from_gguf(GGUF | tokens | {"llama.vocab_size": size}, weights()).vocab == 48
    for size in (1, 39, 49):
        said = f"llama.vocab_size is {size}, but the file has 40 tokens and an embedding of 48 rows"
        with pytest.raises(ModelError, match=said):
            from_gguf(GGUF | tokens | {"llama.vocab_size": size}, weights())
