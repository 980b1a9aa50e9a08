"""From flags to a running server: the model loads in a thread of its own while the server's parts are imported."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo_gateway.api.engine import Engine
    from octavo_gateway.api.settings import ApiSettings
    from octavo_gateway.server.settings import ServerSettings

INTERRUPTED = 130  # as in `lifecycle`, which is imported later
_IDLE_SECONDS = 0.1  # in which a thread without work ends
BAD_INPUT = 2  # the exit status for what the operator can put right


def run_server(
    load: Callable[[], Engine],
    api: ApiSettings,
    settings: ServerSettings,
    explain: Callable[[str], str] = str,
) -> int:
    """Serve until a signal; the process's exit status. What is wrong is one line on stderr.

    `explain` puts what is wrong with the engine's arguments into the operator's words.
    """
    from octavo.errors import OctavoError

    # Until the loop takes the signal over. A KeyboardInterrupt that strikes in the machinery of an import is lost.
    signal.signal(signal.SIGINT, _on_interrupt)
    loading = _load_in_background(load)
    # Heavy imports, while the loader reads and packs.
    import asyncio

    from octavo_gateway.protocol.errors import ApiError
    from octavo_gateway.server.crash_report import CrashReport
    from octavo_gateway.server.lifecycle import bind, serve

    try:
        listener = bind(settings)
    except OSError as e:
        return _complain(f"cannot listen on {settings.host}:{settings.port}: {e.strerror or e}", loading)
    report = CrashReport(settings.crash_folder, sys.argv[1:])
    main = serve(listener, loading, api, settings, report)
    try:
        try:
            import uvloop
        except ImportError:
            status = asyncio.run(main)
        else:
            status = uvloop.run(main)
    except (OctavoError, ApiError) as e:
        report.remove()
        return _complain(explain(str(e)), loading)
    except BaseException as e:
        report.fault(e)
        raise
    report.remove()
    return _leave(status, loading)


def _on_interrupt(number: int, frame: object) -> None:
    os.write(2, b"octavo: interrupted\n")
    os._exit(INTERRUPTED)


def _load_in_background(load: Callable[[], Engine]) -> Future[Engine]:
    loading: Future[Engine] = Future()

    def work() -> None:
        try:
            loading.set_result(load())
        except BaseException as e:
            loading.set_exception(e)

    threading.Thread(target=work, name="octavo-load", daemon=True).start()
    return loading


def _complain(what: str, loading: Future[Engine]) -> int:
    print(f"octavo: error: {' '.join(what.split())}", file=sys.stderr, flush=True)
    return _leave(BAD_INPUT, loading)


def _leave(status: int, loading: Future[Engine]) -> int:
    """The exit status; a load or a prompt that is still being tokenized does not hold up the exit."""
    if not loading.done() or _tokenizing():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _tokenizing() -> bool:
    from octavo_gateway.api.text import THREADS

    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    for thread in threads:
        thread.join(_IDLE_SECONDS)
    return any(thread.is_alive() for thread in threads)
