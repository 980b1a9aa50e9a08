"""The families of models that octavo runs, one small description each."""

from __future__ import annotations

from typing import Any

from octavo.errors import ModelError
from octavo.models.families.family import Family
from octavo.models.families.gemma import GEMMA2, GEMMA3
from octavo.models.families.glm import GLM, GLM4
from octavo.models.families.gpt_oss import GPT_OSS
from octavo.models.families.granite import GRANITE
from octavo.models.families.llama import LLAMA, MISTRAL
from octavo.models.families.moe import MIXTRAL, OLMOE, QWEN2_MOE, QWEN3_MOE
from octavo.models.families.olmo import OLMO2
from octavo.models.families.phi import PHI3
from octavo.models.families.qwen import QWEN2, QWEN3
from octavo.models.families.smollm import SMOLLM3

FAMILIES = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA2,
    GEMMA3,
    PHI3,
    SMOLLM3,
    GRANITE,
    OLMO2,
    GLM,
    GLM4,
    MIXTRAL,
    QWEN2_MOE,
    QWEN3_MOE,
    OLMOE,
    GPT_OSS,
)

_BY_CLASS = {name: family for family in FAMILIES for name in (*family.classes, *family.parts_of)}
_BY_GGUF = {family.gguf: family for family in FAMILIES if family.gguf is not None}

__all__ = ["FAMILIES", "Family", "of_class", "of_gguf"]


def of_class(architectures: Any, source: str) -> Family:
    """The family that ``architectures`` of a ``config.json`` names.

    Raises:
        ModelError: there is none; the message lists those that there are.
    """
    name = architectures
    if isinstance(architectures, list) and len(architectures) == 1:
        name = architectures[0]
        if isinstance(name, str) and name in _BY_CLASS:
            return _BY_CLASS[name]
    raise ModelError(
        f"{source}: architecture {name} is not supported; supported: {', '.join(_BY_CLASS)}",
        code="unsupported",
        param="architectures",
    )


def of_gguf(architecture: Any, source: str) -> Family:
    """The family that ``general.architecture`` of a GGUF names.

    Raises:
        ModelError: there is none; the message lists those that there are.
    """
    if architecture is None:
        raise ModelError(
            f"{source}: general.architecture is missing", code="corrupt_file", param="general.architecture"
        )
    if isinstance(architecture, str) and architecture in _BY_GGUF:
        return _BY_GGUF[architecture]
    raise ModelError(
        f"{source}: general.architecture is {architecture!r}; supported: {', '.join(map(repr, _BY_GGUF))}",
        code="unsupported",
        param="general.architecture",
    )
