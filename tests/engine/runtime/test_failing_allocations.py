"""Every allocation outside the executor may fail: what was begun is undone, nobody is lost and nobody else notices."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from octavo import _engine


def trial(*arguments: object) -> str:
    program = Path(_engine.__file__).resolve().parent / "octavo_allocations"
    if not program.exists():
        pytest.skip("this build of octavo has no programs for tests")
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "windows"), [(1, 0), (2, 1)])
def test_each_allocation_of_the_loop_fails_in_its_turn(slots: int, windows: int) -> None:
    """Admission, plans, forks, preemption, cancels, beams, ends: one failure ends one request at most."""
    print(trial("loop", slots, windows, 1))


@pytest.mark.parametrize("times", [pytest.param(2, marks=pytest.mark.slow), 7, 50])
def test_several_allocations_in_a_row_fail(times: int) -> None:
    """More than a retry or the refusal itself survives: the requests of a step may end, each with its cause."""
    print(trial("loop", 2, 0, times))


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 5])
def test_allocations_of_the_engine_thread_fail(times: int) -> None:
    print(trial("engine", 60, times))


def test_what_finds_no_memory_in_the_callers_thread_is_not_taken() -> None:
    """Submitting, forking, cancelling and looking throw there, and the engine goes on."""
    print(trial("callers"))
