"""A request on its way through the server."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiohttp import web

from octavo_gateway.api.caller import Caller
from octavo_gateway.api.generation import Generation


@dataclass
class Call:
    """A request with what the dispatcher knows of it."""

    request: web.BaseRequest
    id: str  # the client's X-Request-Id, or ours
    caller: Caller
    generations: list[Generation] = field(default_factory=list)  # what it has started
