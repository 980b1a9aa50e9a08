"""One server from bind to exit: it listens at once, loads behind that, serves, drains."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

from octavo.errors import OctavoError
from octavo_gateway.api.context import ApiContext
from octavo_gateway.api.engine import Engine
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.api.text import TextWorkers
from octavo_gateway.server.auth import ApiKeys
from octavo_gateway.server.connection import HttpServer
from octavo_gateway.server.crash_report import CrashReport
from octavo_gateway.server.dispatch import Dispatcher
from octavo_gateway.server.file_limit import raise_file_limit
from octavo_gateway.server.handlers import Handlers
from octavo_gateway.server.request_log import RequestLog
from octavo_gateway.server.settings import ServerSettings
from octavo_gateway.server.state import Phase, ServerState, Service

_log = logging.getLogger("octavo.gateway")

_BACKLOG = 2048
_LONG_TEXT = "long " * 1000  # such a text is tokenized by the tokenizer's own threads
# After an abort each request still gets its last chunk; the engine needs a step for that.
_ABORT_SECONDS = 2.0
_NOTE_SECONDS = 1.0  # between two notes of what the engine does, for the report of a crash
_LOST_SECONDS = 0.5  # between two looks whether the device is still there
_STOP_SECONDS = 10.0  # how long an engine may take to stop that has nothing to do
_URGED_SECONDS = 1.0  # the same after a second signal
INTERRUPTED = 130  # the exit status where Ctrl-C came before the model was there
_INTERRUPT_DRAIN_SECONDS = 2.0  # Ctrl-C is somebody waiting


class Signals:
    """SIGTERM and SIGINT: the first asks to drain, the second to leave at once. SIGHUP: `reload`, if there is one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reload: Callable[[], None] | None = None) -> None:
        self._loop = loop
        self.first: signal.Signals | None = None
        self.asked = asyncio.Event()
        self.urged = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        self._reload = reload
        if reload is not None:
            loop.add_signal_handler(signal.SIGHUP, reload)

    def _on_signal(self, number: signal.Signals) -> None:
        if self.first is None:
            self.first = number
            self.asked.set()
        else:
            self.urged.set()

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.remove_signal_handler(number)
        if self._reload is not None:
            self._loop.remove_signal_handler(signal.SIGHUP)


def bind(settings: ServerSettings) -> socket.socket:
    """The listening socket; OSError when the address is not to be had."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


async def serve(
    listener: socket.socket,
    loading: Future[Engine],
    api: ApiSettings,
    settings: ServerSettings,
    report: CrashReport,
) -> int:
    """Serve until a signal; the exit status. Errors of `loading` are raised."""
    keys = ApiKeys.of(settings)
    raise_file_limit(settings.max_connections)
    signals = Signals(asyncio.get_running_loop(), keys.ring.reload if keys.ring.reloadable else None)
    state = ServerState.of(settings)
    handlers = Handlers(state, api, settings)
    server = HttpServer(Dispatcher(state, handlers, keys, RequestLog(settings.log_requests)), settings)
    http = await asyncio.get_running_loop().create_server(server, sock=listener)
    workers = TextWorkers(api.tokenizer_threads)
    engine: Engine | None = None
    noting: asyncio.Future[None] | None = None
    try:
        engine = await _load(loading, signals)
        if engine is not None:
            tokenizer = engine.tokenizer
            workers.warm(lambda: tokenizer.encode(_LONG_TEXT, add_special_tokens=False))
            service = Service(ApiContext(engine, api, state.metrics, workers))
            await service.declare_prompts()
            state.loaded(service)
            report.engine(engine)
            noting = asyncio.ensure_future(_note(report, state, engine))
            _announce(listener, api, engine)
            lost = asyncio.ensure_future(_device_lost(state))
            asked = asyncio.ensure_future(signals.asked.wait())
            await asyncio.wait((lost, asked), return_when=asyncio.FIRST_COMPLETED)
            lost.cancel()
            asked.cancel()
        reason = state.lost_because
        if reason:
            print(f"octavo: the device is lost, the process ends: {reason}", file=sys.stderr, flush=True)
        status = await _drain(state, signals, settings)
        if reason:
            status = 1
        if engine is None and signals.first is signal.SIGINT:
            print("octavo: interrupted", file=sys.stderr, flush=True)
            status = INTERRUPTED
    finally:
        leaving = _leave_after(_URGED_SECONDS if signals.urged.is_set() else _STOP_SECONDS)
        http.close()
        if noting is not None:
            noting.cancel()
        server.pre_shutdown()
        await server.shutdown(0.5)
        workers.close()
        signals.close()
        if engine is not None:
            engine.shutdown()
        leaving.cancel()
    _log.info("stopped")
    return status


async def _device_lost(state: ServerState) -> None:
    """Returns when the engine's device is lost; until then its requests have been told."""
    while not state.lost_because:  # noqa: ASYNC110 - the engine tells of it in its statistics alone
        await asyncio.sleep(_LOST_SECONDS)


async def _note(report: CrashReport, state: ServerState, engine: Engine) -> None:
    """Keeps in the report what the engine does."""
    while True:
        with contextlib.suppress(OctavoError):
            report.note({"phase": state.phase.value, "accepted": state.accepted, **engine.stats()})
        await asyncio.sleep(_NOTE_SECONDS)


def _leave_after(seconds: float) -> threading.Timer:
    """Ends the process, unless cancelled: where the engine does not stop because a step takes too long or for ever."""

    def leave() -> None:
        _log.error("the engine does not stop; the process ends without it")
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
    return timer


async def _load(loading: Future[Engine], signals: Signals) -> Engine | None:
    """The engine once it is there; None when a signal comes first."""
    loaded = asyncio.wrap_future(loading)
    asked = asyncio.ensure_future(signals.asked.wait())
    await asyncio.wait((loaded, asked), return_when=asyncio.FIRST_COMPLETED)
    if loaded.done():
        asked.cancel()
        return loaded.result()
    return None


def _announce(listener: socket.socket, api: ApiSettings, engine: Engine) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    model = engine.model
    aliases = [f"also named {', '.join(api.served_names[1:])}"] if api.served_names[1:] else []
    facts = [model.summary or model.root, f"window of {model.max_model_len:,} tokens", *aliases]
    print(
        f"{api.served_names[0]} answers at http://{shown}:{port}/v1 ({', '.join(facts)}; Ctrl-C stops)",
        flush=True,
    )


async def _drain(state: ServerState, signals: Signals, settings: ServerSettings) -> int:
    """Refuse what is new, let the rest finish, abort what does not in time; the exit status."""
    state.phase = Phase.DRAINING
    seconds = settings.shutdown_seconds
    if signals.first is signal.SIGINT:
        seconds = min(seconds, _INTERRUPT_DRAIN_SECONDS)
    if state.accepted:
        count = state.accepted
        _log.info("draining %d request%s for up to %g s", count, "" if count == 1 else "s", seconds)
    urged = asyncio.ensure_future(signals.urged.wait())
    drained = asyncio.ensure_future(state.drained(seconds))
    await asyncio.wait((urged, drained), return_when=asyncio.FIRST_COMPLETED)
    if urged.done():
        drained.cancel()
        return 1
    urged.cancel()
    if not drained.result():
        _log.warning("requests are still under way after %g s; they are aborted", seconds)
        state.abort_all()
        await state.drained(_ABORT_SECONDS)
    return 0
