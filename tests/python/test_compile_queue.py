"""Work that takes long holds up nobody else's, and tenants take turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from octavo.structured.compile_queue import LONG_SECONDS, CompileQueue


class Bench:
    """A queue whose long work ends when it is let go."""

    def __init__(self, threads: int) -> None:
        self.queue: CompileQueue[str] = CompileQueue(threads, lambda: None)
        self.let_go = threading.Event()
        self.began: list[str] = []

    def long(self, tenant: str) -> object:
        return self.queue.submit(tenant, lambda: self._do(f"{tenant} long", self.let_go.wait))

    def quick(self, tenant: str, name: str = "quick") -> object:
        return self.queue.submit(tenant, lambda: self._do(f"{tenant} {name}", lambda: None))

    def _do(self, name: str, work: object) -> str:
        self.began.append(name)
        work()  # type: ignore[operator]
        return name


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 2])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(request.param)
    yield made
    made.let_go.set()
    made.queue.close()


def test_long_work_of_some_does_not_hold_up_another(bench: Bench) -> None:
    hostile = [bench.long(f"h{i % 2}") for i in range(20)]
    start = time.monotonic()
    assert bench.quick("light").result(20) == "light quick"  # type: ignore[attr-defined]
    assert time.monotonic() - start < 6 * LONG_SECONDS
    assert bench.began.count("h0 long") <= 2 and bench.began.count("h1 long") <= 2
    bench.let_go.set()
    for future in hostile:
        future.result(20)  # type: ignore[attr-defined]


def test_a_tenants_own_quick_work_goes_on_beside_a_long_one(bench: Bench) -> None:
    bench.long("a")
    assert bench.quick("a").result(20) == "a quick"  # type: ignore[attr-defined]


@pytest.mark.slow
def test_threads_are_bounded(bench: Bench) -> None:
    before = threading.active_count()
    for i in range(100):
        bench.long(f"t{i}")
    deadline = time.monotonic() + 20 * LONG_SECONDS
    while len(bench.began) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(2 * LONG_SECONDS)
    # Beside them an alarm, and the one before it that is about to end.
    assert 4 <= len(bench.began) <= 8 and threading.active_count() - before <= 8 + 2


def test_tenants_take_turns() -> None:
    bench = Bench(1)
    bench.long("first")
    while not bench.began:
        time.sleep(0.001)
    futures = [bench.quick("many", str(i)) for i in range(5)] + [bench.quick("few", str(i)) for i in range(2)]
    for future in futures:
        future.result(20)  # type: ignore[attr-defined]
    assert bench.began[1:] == ["many 0", "few 0", "many 1", "few 1", "many 2", "many 3", "many 4"]
    bench.let_go.set()
    bench.queue.close()


def test_errors_and_the_end() -> None:
    bench = Bench(1)

    def fail() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        bench.queue.submit("a", fail).result(20)
    bench.long("a")
    waiting = [bench.long("a") for _ in range(4)]
    bench.queue.close()
    assert waiting[-1].cancelled()  # type: ignore[attr-defined]
    bench.let_go.set()
    with pytest.raises(RuntimeError):
        bench.quick("a")
