"""Octavo: serve large language models from a paged key-value cache.

Importing this package is cheap: every public name is loaded when it is first used, and neither torch nor
transformers is imported unless something needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from octavo.async_engine import AsyncEngine
    from octavo.llm import LLM
    from octavo.outputs import CompletionOutput, Logprob, RequestOutput
    from octavo.sampling_params import RequestOutputKind, SamplingParams
    from octavo.structured.params import StructuredOutputsParams

_HOMES = {
    "AsyncEngine": "octavo.async_engine",
    "CompletionOutput": "octavo.outputs",
    "LLM": "octavo.llm",
    "Logprob": "octavo.outputs",
    "RequestOutput": "octavo.outputs",
    "RequestOutputKind": "octavo.sampling_params",
    "SamplingParams": "octavo.sampling_params",
    "StructuredOutputsParams": "octavo.structured.params",
}

__all__ = [
    "LLM",
    "AsyncEngine",
    "CompletionOutput",
    "Logprob",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "StructuredOutputsParams",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
