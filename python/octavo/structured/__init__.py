"""Output that is guaranteed to fit a JSON schema, a regular expression, a choice or a grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.structured.compiler import CompiledGrammar, GrammarCompiler, GrammarLimits
    from octavo.structured.params import StructuredOutputsParams
    from octavo.structured.spec import GrammarSpec

_HOMES = {
    "CompiledGrammar": "compiler",
    "GrammarCompiler": "compiler",
    "GrammarLimits": "compiler",
    "GrammarSpec": "spec",
    "StructuredOutputsParams": "params",
}

__all__ = ["CompiledGrammar", "GrammarCompiler", "GrammarLimits", "GrammarSpec", "StructuredOutputsParams"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'octavo.structured' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"octavo.structured.{home}"), name)
    globals()[name] = value
    return value
