"""Identifiers of answers: our own, unique, never taken from a client."""

from __future__ import annotations

import secrets


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(16)}"
