"""Tools in a request, and calls of them in an answer."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from octavo_gateway.protocol import fields


class FunctionDefinition(msgspec.Struct, kw_only=True):
    name: fields.FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True):
    type: Literal["function"] = "function"
    function: FunctionDefinition


class FunctionReference(msgspec.Struct, kw_only=True):
    name: fields.FunctionName


class NamedTool(msgspec.Struct, kw_only=True, tag_field="type", tag="function"):
    """The tool that must be called."""

    function: FunctionReference


class ToolReference(msgspec.Struct, kw_only=True):
    type: Literal["function"] = "function"
    function: FunctionReference


class AllowedToolSet(msgspec.Struct, kw_only=True):
    mode: Literal["auto", "required"]
    tools: list[ToolReference]


class AllowedTools(msgspec.Struct, kw_only=True, tag_field="type", tag="allowed_tools"):
    """The tools that may be called, of those that the prompt describes."""

    allowed_tools: AllowedToolSet


class CalledFunction(msgspec.Struct, kw_only=True):
    name: str
    arguments: str


class CalledTool(msgspec.Struct, kw_only=True):
    id: str
    type: str = "function"
    function: CalledFunction


class CalledFunctionDelta(msgspec.Struct, kw_only=True):
    name: str | msgspec.UnsetType = msgspec.UNSET
    arguments: str


class CallDelta(msgspec.Struct, kw_only=True):
    """The first one of an index has id, type and name; later ones only more of the arguments."""

    index: int
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET
    function: CalledFunctionDelta
