"""No engine thread needs the GIL: tokens come while Python code holds it."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path

import pytest
from loaded_engine import Served, params


@pytest.mark.unsanitized("expects several tokens within one second")
def test_tokens_come_while_another_thread_holds_the_gil(smollm2: Path) -> None:
    usleep = ctypes.PyDLL(None).usleep  # PyDLL, unlike CDLL, keeps the GIL during the call
    with Served(smollm2) as served:
        request = served.submit(served.prompt(8), params(max_tokens=1500))
        served.drain_until(lambda: len(served.results[request].ids) >= 2)
        interval: list[float] = []

        def hold() -> None:
            interval.append(time.monotonic())
            usleep(999_999)
            interval.append(time.monotonic())

        thread = threading.Thread(target=hold)
        thread.start()
        thread.join()
        served.drain_until(lambda: bool(served.results[request].times))
        served.engine.cancel(request)
        (result,) = served.finish([request])
        begin, end = interval
        assert end - begin > 0.9
        inside = [t for t in result.times if begin + 0.05 < t < end - 0.05]
        assert len(inside) >= 5
        # They came all along, not in a burst when the GIL was let go.
        assert max(inside) - min(inside) > 0.5
