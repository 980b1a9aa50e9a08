"""GLM-4: neighbouring dimensions turn together, half of each head; GLM-4-0414 norms after the sublayers too."""

from octavo.models.families.family import Family

_TRAITS = {"rope_interleaved": True, "attention_output_bias": False}
_DEFAULTS = {
    "attention_bias": True,
    "head_dim": 128,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1.5625e-07,
}

GLM = Family(name="glm", classes=("GlmForCausalLM",), traits=_TRAITS, defaults=_DEFAULTS)
GLM4 = Family(
    name="glm4",
    classes=("Glm4ForCausalLM",),
    gguf="glm4",
    gguf_names={"gate_up": "ffn_up"},
    gguf_interleaved=True,
    traits=_TRAITS | {"post_norm": True},
    defaults=_DEFAULTS,
)
