"""Who may say something in a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from octavo import checks

ROLES = ("developer", "system", "user", "assistant", "tool")


def check_roles(messages: Iterable[Any]) -> None:
    """Refuse a role that OpenAI's API does not know, as the gateway does: a template would drop or misread it."""
    for i, message in enumerate(messages):
        role = message.get("role") if isinstance(message, Mapping) else None
        if isinstance(role, str) and role not in ROLES:
            raise checks.invalid(f"messages[{i}].role", role, f"one of {', '.join(ROLES)}")
