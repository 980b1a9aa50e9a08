"""Asks a server for its snapshot."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request

import msgspec

from octavo.errors import OctavoError
from octavo_gateway.protocol.cache import CacheSnapshot


class TopError(OctavoError):
    """What keeps the view from its data, in a line."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unavailable", param="url")


class SnapshotClient:
    """Reads `/debug/cache` of the server at `url` (with or without /v1)."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        base = url.rstrip("/").removesuffix("/v1")
        if not base.startswith(("http://", "https://")):
            base = f"http://{base}"
        self.base = base
        self._timeout = timeout
        try:
            self._request = urllib.request.Request(f"{base}/debug/cache")
        except ValueError as e:
            raise TopError(f"{url!r} is not an address: {e}") from None
        if key:
            self._request.add_header("Authorization", f"Bearer {key}")

    def fetch(self) -> CacheSnapshot:
        """Raises TopError that says what to do."""
        try:
            with urllib.request.urlopen(self._request, timeout=self._timeout) as response:
                body = response.read()
        except urllib.error.HTTPError as e:
            raise TopError(self._refused(e)) from None
        except (OSError, http.client.HTTPException, ValueError) as e:
            reason = getattr(e, "reason", None) or e
            raise TopError(f"no answer from {self.base}: {reason}") from None
        try:
            return msgspec.json.decode(body, type=CacheSnapshot)
        except msgspec.DecodeError as e:
            raise TopError(f"{self.base} answers with something else than a snapshot: {e}") from None

    def _refused(self, error: urllib.error.HTTPError) -> str:
        if error.code == 404:
            return (
                f"{self.base} does not show its cache: start it with --debug-cache, or give --api-key one of its "
                "admin keys"
            )
        if error.code == 401:
            return f"{self.base} wants a key: give --api-key"
        try:
            message = json.loads(error.read(65536))["error"]["message"]
        except (OSError, ValueError, KeyError, TypeError):
            message = error.reason
        return f"{self.base} answers {error.code}: {message}"
