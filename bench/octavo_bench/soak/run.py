"""One soak from the quiet answers to the server's exit status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo_bench.own_server import ServedProcess, cpu_seconds, served
from octavo_bench.soak.driver import Driver, Tally, quiet_answers
from octavo_bench.soak.questions import KINDS, absurdities, questions
from octavo_bench.soak.trend import Trend, trend
from octavo_bench.soak.watch import Watch

# What no request may become.
FAULTS = ("lost", "duplicated", "wrong", "malformed", "not refused")
# Memory that rises by more in the second half of a run is a leak: 56 KiB a minute in half an hour.
GROWTH = 840 * 1024
SLICES = 20
_SETTLE_SECONDS = 120.0
_STOP_SECONDS = 120.0
_TRIALS = 3
_FASTER, _SLOWER = 1.2, 0.9  # than a rate that was sustained, or not: the next one tried


@dataclass(frozen=True, slots=True)
class Settings:
    model: str
    seconds: float
    folder: Path
    questions: int = 96
    tenants: int = 8
    seats: int = 32
    window: int = 1024
    pool: str = "24MiB"
    threads: int = 0
    seed: int = 0
    trial_seconds: float = 20.0

    @property
    def arguments(self) -> list[str]:
        return [
            *("--max-num-seqs", str(self.seats), "--max-num-batched-tokens", "256"),
            *("--max-model-len", str(self.window), "--kv-cache-memory", self.pool),
            *("--threads", str(self.threads), "--stall-timeout", "300", "--shutdown-timeout", "300"),
            *("--served-model-name", "soak", "--max-queue", "100000", "--crash-dir", str(self.folder / "crashes")),
        ]  # fmt: skip


@dataclass
class Soak:
    """What a soak found.

    Attributes:
        capacity: requests that ended per second with as much as possible under way.
        rate: arrivals per second that were sustained before the run.
        rates: those of each part of the run. The machine may have more or less to spare for the server than it had, so
            the rate rises while hardly anything waits and falls when arrivals had to be held back.
        held: seconds for which they were.
        preempting: in how many of ``SLICES`` parts of the run somebody was preempted.
        server_cpu, driver_cpu: seconds of processor time while the load ran.
        problems: why it failed; empty where it did not.
    """

    seconds: float = 0.0
    capacity: float = 0.0
    rate: float = 0.0
    rates: list[float] = field(default_factory=list)
    held: float = 0.0
    tally: Tally = field(default_factory=Tally)
    memory: Trend | None = None
    memory_bytes: float = 0.0
    audits: int = 0
    looks: int = 0
    preempting: int = 0
    preemptions: float = 0.0
    server_cpu: float = 0.0
    driver_cpu: float = 0.0
    ended_with: int | None = None
    stop_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return sum(self.tally.counts.values())


async def soak(settings: Settings, say: Callable[[str], None]) -> Soak:
    """Runs it; ``say`` hears how far it is."""
    found = Soak()
    settings.folder.mkdir(parents=True, exist_ok=True)
    asked = questions(settings.questions, settings.seed)
    async with served(
        settings.model, settings.arguments, settings.folder, tenants=settings.tenants
    ) as server:
        begin = time.perf_counter()
        expected = await quiet_answers(server.session, server.base, asked, server.keys[0])
        say(f"{len(asked)} quiet answers in {time.perf_counter() - begin:.0f} s")
        await _clean(server, found, "after the quiet answers")
        driver = Driver(
            server.session, server.base, asked, absurdities(settings.window), expected, server.keys, settings.seed
        )  # fmt: skip
        # What only the largest step of a kind touches is there before memory is watched.
        for first in range(KINDS):
            await driver.together(range(first, len(asked), KINDS))
        await _find_rate(driver, settings, found, say)
        cpu, own = cpu_seconds(server.pid), time.process_time()
        begin = time.perf_counter()
        async with Watch(server, min(5.0, settings.seconds / 60)) as watch:
            rate = found.rate
            for _ in range(SLICES):
                found.rates.append(rate)
                held = driver.held
                await driver.arrive(rate, settings.seconds / SLICES, 2 * settings.seats)
                _progress(driver, watch, time.perf_counter() - begin, rate, say)
                if driver.held - held > 0.1 * settings.seconds / SLICES:
                    rate *= _SLOWER
                elif driver.under_way < settings.seats / 2:
                    rate *= _FASTER
            await driver.drain()
        found.seconds = time.perf_counter() - begin
        found.server_cpu, found.driver_cpu = cpu_seconds(server.pid) - cpu, time.process_time() - own
        found.tally, found.held = driver.tally, driver.held
        _judge_watch(watch, found)
        await _settled(server, found, len(asked))
        again = await quiet_answers(server.session, server.base, asked[:12], server.keys[-1])
        if again != expected[:12]:
            found.problems.append("the first questions have other answers after the run")
        found.preemptions = (await server.samples())["vllm:num_preemptions_total"]
        found.ended_with, found.stop_seconds = await server.stop(_STOP_SECONDS)
        if found.ended_with != 0:
            found.problems.append(f"SIGTERM ended the server with {found.ended_with}")
        if said := [
            line for line in server.log.read_text(errors="replace").splitlines() if " ERROR " in line
        ]:
            found.problems.append(f"the server's log has {len(said)} errors, the first: {said[0][:300]}")
    for kind in FAULTS:
        if count := found.tally.counts[kind]:
            found.problems.append(f"{count} {kind}")
    found.problems += found.tally.failures
    return found


async def _find_rate(driver: Driver, settings: Settings, found: Soak, say: Callable[[str], None]) -> None:
    """The highest rate tried at which no queue builds up, from the one at which the server is as busy as can be."""
    found.capacity = await driver.saturate(settings.trial_seconds, 2 * settings.seats)
    await driver.drain()
    say(f"{found.capacity:.2f} requests/s with {2 * settings.seats} under way")
    rate = found.capacity
    for _ in range(_TRIALS):
        await driver.arrive(rate, settings.trial_seconds, 2 * settings.seats)
        left = driver.under_way
        await driver.drain()
        sustained = left <= settings.seats
        say(
            f"{rate:.2f} requests/s: {left} under way in the end, {'sustained' if sustained else 'not sustained'}"
        )
        if sustained:
            found.rate = rate
            rate *= _FASTER
        elif found.rate:
            break
        else:
            rate *= _SLOWER
    found.rate = found.rate or rate
    driver.held = 0.0


def _progress(driver: Driver, watch: Watch, seconds: float, rate: float, say: Callable[[str], None]) -> None:
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(driver.tally.counts.items()))
    memory = f"{watch.memory[-1] / 2**20:.1f} MiB" if watch.memory else "?"
    say(
        f"{seconds:.0f} s: {counts}; {memory}, {watch.audits} clean audits, {len(watch.complaints)} complaints"
    )


def _judge_watch(watch: Watch, found: Soak) -> None:
    found.audits, found.looks, found.preempting = watch.audits, len(watch.times), watch.preempting(SLICES)
    found.problems += watch.complaints[:10]
    if found.preempting < 0.75 * SLICES:
        found.problems.append(
            f"somebody was preempted in {found.preempting} of {SLICES} parts of the run only: "
            "the pool is too large for this load"
        )
    # What is there only once it was needed (the pool's pages, those of the largest steps) is no growth.
    warm = len(watch.times) // 2
    times, memory = watch.times[warm:], watch.memory[warm:]
    found.memory_bytes = memory[-1] if memory else 0.0
    try:
        found.memory = trend(times, memory)
    except ValueError as e:
        found.problems.append(f"memory: {e}")
        return
    if found.memory.low > 0 and found.memory.growth > GROWTH:
        found.problems.append(
            f"memory grew by {found.memory.growth / 2**20:.1f} MiB in the last {found.memory.seconds:.0f} s"
        )


async def _clean(server: ServedProcess, found: Soak, when: str) -> None:
    clean, said = await server.audit()
    if not clean:
        found.problems.append(f"audit {when}: {said[:300]}")


async def _settled(server: ServedProcess, found: Soak, quiet: int) -> None:
    """Nothing runs, waits or holds a block, the blocks add up, and the server counts as many ends as the driver and the
    ``quiet`` answers before."""
    idle = ("vllm:num_requests_running", "vllm:num_requests_waiting", "octavo:kv_blocks_live")
    give_up = time.perf_counter() + _SETTLE_SECONDS
    while True:
        now = await server.samples()
        if not any(now[name] for name in idle):
            break
        if time.perf_counter() > give_up:
            found.problems.append(f"not idle after the drain: { {name: now[name] for name in idle} }")
            break
        await asyncio.sleep(0.1)
    await _clean(server, found, "after the drain")
    counts = found.tally.counts
    answered = counts["answered"] + quiet
    finished: dict[str, Any] = {key[9:]: int(v) for key, v in now.items() if key.startswith("finished ")}
    whole = finished.get("stop", 0) + finished.get("length", 0)
    if finished.get("error", 0):
        found.problems.append(f"the server ended {finished['error']} requests with an error")
    if not answered <= whole <= answered + counts["hung up"]:
        found.problems.append(f"the server finished {whole} requests, {answered} were answered")
