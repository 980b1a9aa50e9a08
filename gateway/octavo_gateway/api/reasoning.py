"""`reasoning_effort` as variables of the chat template."""

from __future__ import annotations

from typing import Any

from octavo_gateway.protocol.errors import invalid, quoted, unsupported

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
# What templates have that can leave the thought out.
_SWITCHES = ("enable_thinking", "thinking")


def takes_effort(template: str, reasons: bool) -> bool:
    """Whether any other effort than "none" means something: the model reasons, or its template asks for one."""
    return reasons or "reasoning_effort" in template


def effort_variables(effort: str | None, template: str, reasons: bool) -> dict[str, Any]:
    """What the template gets. A model that does not reason takes only "none".

    Args:
        template: its source.
        reasons: the model's answers are read for thoughts.
    """
    if effort is None:
        return {}
    if effort not in _EFFORTS:
        raise invalid(
            "reasoning_effort",
            f"reasoning_effort must be one of {', '.join(_EFFORTS)}, got {quoted(effort)}.",
        )
    if effort == "none":
        return {"reasoning_effort": effort, **dict.fromkeys(_SWITCHES, False)}
    if not takes_effort(template, reasons):
        raise unsupported("reasoning_effort", "this model does not reason.")
    return {"reasoning_effort": effort}
