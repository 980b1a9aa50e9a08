"""The shapes of what the server says about itself."""

from __future__ import annotations

import msgspec


class Status(msgspec.Struct):
    status: str


class Version(msgspec.Struct):
    version: str
