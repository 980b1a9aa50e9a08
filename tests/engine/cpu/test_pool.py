"""The thread pool: every tile once, errors carried out, regions back to back, clean ends."""

import os
import threading
import time

import pytest

from octavo import _engine


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_every_index_runs_exactly_once(threads: int, n: int) -> None:
    ops = _engine.BackendOps(threads)
    seen: list[int] = []
    ops.parallel_for(n, seen.append)
    assert sorted(seen) == list(range(n))


def test_several_threads_take_part() -> None:
    ops = _engine.BackendOps(3)
    names: set[int] = set()
    meet = threading.Barrier(3)

    def body(_: int) -> None:
        names.add(threading.get_ident())
        meet.wait(timeout=10)

    ops.parallel_for(3, body)
    assert len(names) == 3


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_reaches_the_caller_and_the_pool_goes_on(threads: int) -> None:
    ops = _engine.BackendOps(threads)

    def body(i: int) -> None:
        if i == 5:
            raise ValueError("tile 5")

    for _ in range(3):
        with pytest.raises(ValueError, match="tile 5"):
            ops.parallel_for(20, body)
        seen: list[int] = []
        ops.parallel_for(20, seen.append)
        assert sorted(seen) == list(range(20))


def test_many_regions_back_to_back_and_after_workers_have_parked() -> None:
    ops = _engine.BackendOps(4)
    total = 0

    def body(_: int) -> None:
        nonlocal total
        total += 1  # safe: the interpreter's lock is held

    for i in range(300):
        ops.parallel_for(5, body)
        if i % 100 == 0:
            time.sleep(0.01)  # longer than the workers spin
    assert total == 1500


def test_pools_come_and_go_without_leaving_threads() -> None:
    def live_threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = live_threads()
    for threads in (1, 2, 5) * 10:
        ops = _engine.BackendOps(threads)
        ops.parallel_for(3, lambda i: None)
        del ops
    assert live_threads() == before


def test_the_caller_sleeps_while_a_tile_takes_long() -> None:
    """It neither spins nor yields: on a busy machine both would cost it the time that it needs afterwards."""
    ops = _engine.BackendOps(2)
    meet = threading.Barrier(2)
    caller = threading.get_ident()

    def body(_: int) -> None:
        meet.wait(timeout=10)
        if threading.get_ident() != caller:
            time.sleep(0.3)

    before = time.thread_time()
    ops.parallel_for(2, body)
    assert time.thread_time() - before < 0.1


def test_idle_workers_park() -> None:
    ops = _engine.BackendOps(4)
    ops.parallel_for(8, lambda i: None)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05


def test_default_is_the_allowed_cpus() -> None:
    assert 1 <= _engine.allowed_cpus() <= len(os.sched_getaffinity(0))
    assert _engine.BackendOps().threads == _engine.allowed_cpus()


def test_the_affinity_mask_is_honoured() -> None:
    mask = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(mask)})
        assert _engine.allowed_cpus() == 1
    finally:
        os.sched_setaffinity(0, mask)


@pytest.mark.parametrize("threads", [-1, 100_000])
def test_a_senseless_number_of_threads_is_refused(threads: int) -> None:
    with pytest.raises(Exception, match="threads must be in"):
        _engine.BackendOps(threads)


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(Exception, match="sse9"):
        _engine.BackendOps(1, "sse9")
    assert _engine.BackendOps(1, "baseline").isa == "baseline"
