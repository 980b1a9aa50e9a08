"""OLMo 2: norms only after the sublayers, and one norm over all heads of q and of k."""

from octavo import _engine
from octavo.models.families.family import Family

OLMO2 = Family(
    name="olmo2",
    classes=("Olmo2ForCausalLM",),
    gguf="olmo2",
    names={
        "attention_post_norm": "post_attention_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    },
    traits={"pre_norm": False, "post_norm": True, "qk_norm": _engine.QkNorm.TOGETHER},
    defaults={"rms_norm_eps": 1e-5},
)
