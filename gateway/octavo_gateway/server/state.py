"""Where the server is in its life, and the requests it has accepted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from octavo_gateway.api.chat import ChatService
from octavo_gateway.api.completions import CompletionService
from octavo_gateway.api.context import ApiContext
from octavo_gateway.api.generation import Generation
from octavo_gateway.api.metrics import Metrics
from octavo_gateway.api.shared_prompts import SharedPrompts
from octavo_gateway.api.tokens import tokenize
from octavo_gateway.protocol.errors import queue_full, too_many_of_tenant, unavailable
from octavo_gateway.server.settings import ServerSettings


class Phase(Enum):
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"


class Service:
    """A loaded model and what answers requests for it."""

    def __init__(self, context: ApiContext) -> None:
        self.context = context
        self.chat = ChatService(context)
        self.completions = CompletionService(context)

    async def declare_prompts(self) -> None:
        """Work out the ids of the prompts that the operator declared shared. Raises ApiError for one that is wrong."""
        context = self.context
        declared = context.settings.shared_prompts
        context.shared_prompts = SharedPrompts(
            [(await tokenize(context, self.chat, prompt)).tokens for prompt in declared]
        )


class ServerState:
    """Belongs to the event loop's thread."""

    def __init__(self, max_concurrent: int, stall_seconds: float, max_per_tenant: int = 0) -> None:
        self.phase = Phase.LOADING
        self.metrics = Metrics()
        self._service: Service | None = None
        self._max_concurrent = max_concurrent
        self._stall_seconds = stall_seconds
        self._accepted = 0
        self._max_per_tenant = max_per_tenant  # 0: no limit
        self._of_tenants: dict[str, int] = {}  # accepted requests of those who have any
        self._busy_since = 0.0
        self._generations: set[Generation] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._aborting = False

    @classmethod
    def of(cls, settings: ServerSettings) -> ServerState:
        return cls(settings.max_concurrent, settings.stall_seconds, settings.max_tenant_requests)

    def loaded(self, service: Service) -> None:
        self._service = service
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY

    def service(self) -> Service:
        """What answers; 503 while there is nothing or no more."""
        if self.phase is Phase.DRAINING:
            raise unavailable("The server is shutting down.", retry_after=5)
        if self._service is None:
            raise unavailable("The model is being loaded.")
        return self._service

    @property
    def engine_service(self) -> Service | None:
        """The same for those who only look, in every phase."""
        return self._service

    @property
    def lost_because(self) -> str:
        """Why the engine's device takes no step any more; empty while it works."""
        if self._service is None:
            return ""
        return str(self._service.context.engine.stats().get("device_lost", ""))

    @property
    def accepted(self) -> int:
        """Requests that have been accepted and are not finished."""
        return self._accepted

    def check_places(self, tenant: str | None, places: int = 1) -> None:
        """429 when there are not so many places in the queue, or not for this tenant."""
        if self._accepted + places > self._max_concurrent:
            raise queue_full(self._max_concurrent)
        limit = self._max_per_tenant
        if limit and tenant is not None and self._of_tenants.get(tenant, 0) + places > limit:
            raise too_many_of_tenant(limit)

    @contextmanager
    def accept(self, tenant: str | None, places: int = 1) -> Iterator[None]:
        """Holds places in the queue. Between here and the end of its answer a request is never lost."""
        self.check_places(tenant, places)
        self._accepted += places
        self._idle.clear()
        if tenant is not None:
            self._of_tenants[tenant] = self._of_tenants.get(tenant, 0) + places
        try:
            yield
        finally:
            self._accepted -= places
            if not self._accepted:
                self._idle.set()
            if tenant is not None:
                self._of_tenants[tenant] -= places
                if not self._of_tenants[tenant]:
                    del self._of_tenants[tenant]

    @contextmanager
    def running(self, generations: Sequence[Generation]) -> Iterator[None]:
        """Registers what was submitted, so that a shutdown reaches it; closes it in the end."""
        if not self._generations:
            self._busy_since = time.monotonic()
        self._generations.update(generations)
        if self._aborting:
            self.abort_all()
        try:
            yield
        finally:
            for generation in generations:
                self._generations.discard(generation)
                generation.close()

    def unread(self) -> dict[int, int]:
        """By the engine's number for a request: deltas that wait for its reader."""
        return {g.request: g.backlog for g in self._generations}

    def not_ready_because(self) -> str | None:
        """Why traffic should go elsewhere, or None."""
        if self.lost_because:
            return f"the device is lost: {self.lost_because}"
        if self.phase is not Phase.READY or self._service is None:
            return self.phase.value
        if not self._generations:
            return None
        stats = self._service.context.engine.stats()
        quiet = time.monotonic() - max(self._busy_since, stats["last_step"])
        if quiet <= self._stall_seconds:
            return None
        return f"the engine has work and has not stepped for {quiet:.0f} s"

    async def drained(self, seconds: float) -> bool:
        """Waits for the accepted requests; True when all have ended in time."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    def abort_all(self) -> None:
        """Ends every request with what it has; later ones end as soon as they start."""
        self._aborting = True
        for generation in list(self._generations):
            generation.cancel()
