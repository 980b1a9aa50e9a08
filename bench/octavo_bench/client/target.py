"""The server that a load is sent to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go and what they have in common.

    Attributes:
        base_url: scheme, host and port; a trailing ``/v1`` is taken as part of ``endpoint``.
        model: the name sent with each request.
        endpoint: the path; one that ends in ``/chat/completions`` is sent messages, any other a prompt.
        headers: sent with each request.
        body: fields of each request's body; a shot's own win.
        timeout: seconds after which a request is a failure.
        verify_tls: False accepts any certificate.
    """

    base_url: str
    model: str
    endpoint: str = COMPLETIONS
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 600.0
    verify_tls: bool = True

    @property
    def root(self) -> str:
        """The URL that paths are appended to."""
        return self.base_url.rstrip("/").removesuffix("/v1")

    @property
    def url(self) -> str:
        return self.root + self.endpoint

    @property
    def chat(self) -> bool:
        return self.endpoint.rstrip("/").endswith("/chat/completions")
