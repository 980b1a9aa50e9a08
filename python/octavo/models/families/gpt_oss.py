"""gpt-oss: experts in MXFP4 with biases and a clamped gate, attention sinks, YaRN, windows in every other layer."""

from octavo import _engine
from octavo.models.families.family import Family
from octavo.models.families.layers import layer, windows_by_type
from octavo.models.families.moe import read_experts, read_gguf_experts
from octavo.models.fields import Fields


def _read(fields: Fields, config: _engine.ModelConfig) -> None:
    windows_by_type(fields, config, lambda i: i % 2 == 0, fields.integer("sliding_window", 128))
    read_experts(fields, config, count="num_local_experts", width="intermediate_size")
    fields.only("swiglu_limit", (7.0,), 7.0)
    fields.only("swiglu_alpha", (1.702,), 1.702)
    stored = Fields(fields.mapping("quantization_config"), f"{fields.source}: quantization_config")
    stored.only("quant_method", ("mxfp4", None), None)  # how its experts lie in the file; all else is dense
    fields.skip(["experts_per_token", "initial_context_length"])  # what older files call other fields
    _set_experts(config)


def _read_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    window = fields.integer("attention.sliding_window", 128)
    config.layers = [layer(window if i % 2 == 0 else 0) for i in range(config.num_layers)]
    read_gguf_experts(fields, config)
    _set_experts(config)
    config.rope.truncate = False


def _set_experts(config: _engine.ModelConfig) -> None:
    config.moe.normalized = True
    config.moe.router_bias = config.moe.bias = True


GPT_OSS = Family(
    name="gpt-oss",
    classes=("GptOssForCausalLM",),
    gguf="gpt-oss",
    names={"router": "mlp.router"},
    gguf_names={"mlp_norm": "post_attention_norm"},
    traits={"attention_sinks": True, "activation": _engine.Activation.CLAMPED_SILU},
    defaults={
        "attention_bias": True,
        "head_dim": 64,
        "rope_theta": 150000.0,
        "sliding_window": 128,
        "rms_norm_eps": 1e-5,
    },
    read=_read,
    read_gguf=_read_gguf,
)
