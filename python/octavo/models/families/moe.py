"""Mixtures of experts: Mixtral, Qwen2-MoE, Qwen3-MoE and OLMoE."""

from octavo import _engine
from octavo.models.families.family import Family
from octavo.models.families.layers import layer, window_everywhere, windows_by_type
from octavo.models.fields import Fields

MAX_EXPERTS = 1 << 12


def read_experts(fields: Fields, config: _engine.ModelConfig, *, count: str, width: str) -> None:
    """The number of experts under the name ``count`` and their width under ``width``."""
    config.moe.experts = fields.integer(count, high=MAX_EXPERTS)
    config.moe.experts_per_token = fields.integer("num_experts_per_tok", high=config.moe.experts)
    config.moe.intermediate = fields.integer(width)
    fields.skip(["output_router_logits", "router_aux_loss_coef", "router_jitter_noise"])


def read_gguf_experts(fields: Fields, config: _engine.ModelConfig) -> None:
    """The number of experts and their width; a file without a width has that of an MLP."""
    config.moe.experts = fields.integer("expert_count", high=MAX_EXPERTS)
    config.moe.experts_per_token = fields.integer("expert_used_count", high=config.moe.experts)
    config.moe.intermediate = fields.integer("expert_feed_forward_length", config.intermediate)


def _read_mixtral(fields: Fields, config: _engine.ModelConfig) -> None:
    window_everywhere(fields, config)
    read_experts(fields, config, count="num_local_experts", width="intermediate_size")


def _dense_layers(fields: Fields, config: _engine.ModelConfig) -> None:
    """Layers that ``mlp_only_layers`` names, or that ``decoder_sparse_step`` passes over, have an MLP."""
    step = fields.integer("decoder_sparse_step", 1)
    named = fields.indices("mlp_only_layers", config.num_layers)
    dense = [i in named or (i + 1) % step != 0 for i in range(config.num_layers)]
    if any(dense):
        layers = config.layers or [layer() for _ in dense]
        for described, is_dense in zip(layers, dense, strict=True):
            described.dense = is_dense
        config.layers = layers


def _count(fields: Fields) -> str:
    """transformers 5 writes ``num_local_experts`` for some of these, all others ``num_experts``."""
    return "num_experts" if fields.values.get("num_experts") is not None else "num_local_experts"


def _read_qwen2_moe(fields: Fields, config: _engine.ModelConfig) -> None:
    used = fields.boolean("use_sliding_window", False)
    window = fields.integer("sliding_window", 0, low=0)
    last = fields.integer("max_window_layers", 28, low=0)
    windows_by_type(fields, config, lambda i: used and window > 0 and i % 2 == 0 and i < last, window)
    read_experts(fields, config, count=_count(fields), width="moe_intermediate_size")
    config.attention_bias = fields.boolean("qkv_bias", True)
    config.moe.normalized = fields.boolean("norm_topk_prob", False)
    config.moe.shared_intermediate = fields.integer("shared_expert_intermediate_size")
    config.moe.shared_gate = True
    _dense_layers(fields, config)


def _read_qwen2_moe_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    read_gguf_experts(fields, config)
    config.moe.normalized = False
    config.moe.shared_intermediate = fields.integer("expert_shared_feed_forward_length")
    config.moe.shared_gate = True


def _read_qwen3_moe(fields: Fields, config: _engine.ModelConfig) -> None:
    if fields.boolean("use_sliding_window", False):
        window_everywhere(fields, config)
    fields.skip(["sliding_window", "max_window_layers"])
    read_experts(fields, config, count=_count(fields), width="moe_intermediate_size")
    config.moe.normalized = fields.boolean("norm_topk_prob", False)
    _dense_layers(fields, config)


def _read_olmoe(fields: Fields, config: _engine.ModelConfig) -> None:
    read_experts(fields, config, count=_count(fields), width="intermediate_size")
    config.moe.normalized = fields.boolean("norm_topk_prob", False)


def _read_olmoe_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    read_gguf_experts(fields, config)
    config.moe.normalized = False


MIXTRAL = Family(
    name="mixtral",
    classes=("MixtralForCausalLM",),
    names={
        "router": "block_sparse_moe.gate",
        "experts": "block_sparse_moe.experts.",
        "expert_gate": "w1",
        "expert_up": "w3",
        "expert_down": "w2",
    },
    defaults={"rope_theta": 1e6, "rms_norm_eps": 1e-5},
    read=_read_mixtral,
)
QWEN2_MOE = Family(
    name="qwen2moe",
    classes=("Qwen2MoeForCausalLM",),
    gguf="qwen2moe",
    traits={"attention_output_bias": False},
    defaults={"sliding_window": 4096},
    read=_read_qwen2_moe,
    read_gguf=_read_qwen2_moe_gguf,
)
QWEN3_MOE = Family(
    name="qwen3moe",
    classes=("Qwen3MoeForCausalLM",),
    gguf="qwen3moe",
    traits={"qk_norm": _engine.QkNorm.HEAD},
    defaults={"sliding_window": 4096},
    read=_read_qwen3_moe,
    read_gguf=read_gguf_experts,
)
OLMOE = Family(
    name="olmoe",
    classes=("OlmoeForCausalLM",),
    gguf="olmoe",
    traits={"qk_norm": _engine.QkNorm.TOGETHER},
    defaults={"rms_norm_eps": 1e-5},
    read=_read_olmoe,
    read_gguf=_read_olmoe_gguf,
)
