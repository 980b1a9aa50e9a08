"""`chat_template_kwargs`: variables for the template, among which two of the request's own fields may be."""

from __future__ import annotations

from typing import Any

from octavo_gateway.protocol.chat import ChatCompletionRequest
from octavo_gateway.protocol.errors import invalid

_FIELDS = ("add_generation_prompt", "continue_final_message")  # they win over the request's, as with vLLM
_TAKEN = ("messages", "tools", "add_special_tokens", "allow_control_tokens", "self")


def template_variables(request: ChatCompletionRequest) -> tuple[dict[str, Any], bool, bool]:
    """The variables, and whether the answer is introduced and whether the last message goes on.

    Raises ApiError for a name that the server itself gives.
    """
    variables = dict(request.chat_template_kwargs or {})
    for name in _TAKEN:
        if name in variables:
            raise invalid(
                "chat_template_kwargs", f"chat_template_kwargs.{name} is not possible: the server gives it."
            )
    flags = {
        "add_generation_prompt": request.add_generation_prompt,
        "continue_final_message": request.continue_final_message,
    }
    for name in _FIELDS:
        if name in variables:
            flags[name] = variables.pop(name)
            if not isinstance(flags[name], (bool, type(None))):
                raise invalid("chat_template_kwargs", f"chat_template_kwargs.{name} must be true or false.")
    introduced, goes_on = (flags[name] for name in _FIELDS)
    if goes_on and introduced:
        raise invalid(
            "continue_final_message",
            "continue_final_message and add_generation_prompt exclude each other.",
        )
    return variables, introduced is not False and not goes_on, bool(goes_on)
