"""What a request's tools ask for, checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from octavo_gateway.protocol.chat import ChatCompletionRequest
from octavo_gateway.protocol.errors import invalid, quoted
from octavo_gateway.protocol.tools import AllowedTools, FunctionDefinition, NamedTool, Tool

MAX_TOOLS = 1024
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass(frozen=True)
class ToolUse:
    """How an answer may use tools.

    Attributes:
        described: the tools that the prompt tells of.
        callable: the functions that may be called.
        required: the answer is calls and nothing else.
        several: there may be more calls than one.
    """

    described: Sequence[dict[str, Any]] = ()
    callable: Sequence[FunctionDefinition] = ()
    required: bool = False
    several: bool = True

    @property
    def names(self) -> frozenset[str]:
        return frozenset(function.name for function in self.callable)


def tool_use(request: ChatCompletionRequest) -> ToolUse:
    """Checks `tools` and `tool_choice`. Without tools, or with "none", nothing is described and nothing called."""
    tools, choice = request.tools or [], request.tool_choice
    functions = _functions(tools)
    if choice == "none":
        return ToolUse()
    if not tools:
        if choice not in (None, "auto"):
            raise invalid("tool_choice", "tool_choice asks for a call, and tools is empty.")
        return ToolUse()
    several = request.parallel_tool_calls is not False
    described = [_without_nulls(msgspec.to_builtins(tool)) for tool in tools]
    if isinstance(choice, NamedTool):
        chosen = [_named(choice.function.name, functions, "tool_choice")]
        return ToolUse(described, chosen, required=True, several=False)
    required = choice == "required"
    if isinstance(choice, AllowedTools):
        allowed = choice.allowed_tools
        names = dict.fromkeys(tool.function.name for tool in allowed.tools)
        if not names:
            raise invalid("tool_choice", "tool_choice.allowed_tools.tools must not be empty.")
        chosen = [_named(name, functions, "tool_choice") for name in names]
        return ToolUse(described, chosen, required=allowed.mode == "required", several=several)
    return ToolUse(described, list(functions.values()), required=required, several=several)


def _functions(tools: Sequence[Tool]) -> dict[str, FunctionDefinition]:
    if len(tools) > MAX_TOOLS:
        raise invalid("tools", f"tools: {len(tools)} items, at most {MAX_TOOLS} are possible.")
    functions: dict[str, FunctionDefinition] = {}
    for i, tool in enumerate(tools):
        name = tool.function.name
        where = f"tools[{i}].function.name"
        if not _NAME.fullmatch(name):
            raise invalid(where, f"{where}: {quoted(name)} is not 1 to 128 of A-Z a-z 0-9 _ . : / -.")
        if name in functions:
            raise invalid(where, f"{where}: {quoted(name)} is the name of another tool, too.")
        functions[name] = tool.function
    return functions


def _named(name: str, functions: dict[str, FunctionDefinition], where: str) -> FunctionDefinition:
    if name not in functions:
        raise invalid(where, f"{where}: {quoted(name)} is not one of the tools.")
    return functions[name]


def _without_nulls(tool: dict[str, Any]) -> dict[str, Any]:
    function = {name: value for name, value in tool["function"].items() if value is not None}
    return {"type": tool["type"], "function": function}
