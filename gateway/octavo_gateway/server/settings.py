"""What the server itself needs to know, all of it flags of `octavo serve`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    named_keys: str = ""  # entries as in a key file
    key_file: str | None = None
    admin_keys: tuple[str, ...] = ()
    debug_cache: bool = False  # /debug/cache answers whoever may send requests
    max_body_bytes: int = 32 * 1024 * 1024
    max_bodies_bytes: int = 256 * 1024 * 1024  # of large bodies at once
    max_connections: int = 4096
    header_seconds: float = 20.0  # for the head of a request, from its first byte
    body_seconds: float = 60.0  # for its body
    idle_seconds: float = 75.0  # how long a connection may wait for its next request
    max_concurrent: int = 256 + 1024  # accepted and unfinished requests: those that run and those that wait
    max_tenant_requests: int = 0  # accepted and unfinished requests of one tenant; 0: no limit of its own
    max_stream_backlog: int = 1024  # steps that may wait for a slow reader
    stalled_reader_seconds: float = 60.0
    shutdown_seconds: float = 20.0
    log_requests: bool = True
    crash_folder: str | None = None  # where a crash leaves its report
    stall_seconds: float = 30.0  # /ready fails when the engine has work and has not stepped for so long

    @property
    def keyed(self) -> bool:
        """Whether requests need a key."""
        return bool(self.api_keys or self.named_keys.strip() or self.key_file)
