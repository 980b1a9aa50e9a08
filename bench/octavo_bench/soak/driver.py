"""Sends the requests of a soak and judges each answer as it comes."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from octavo_bench.client.stream import READ_BUFFER
from octavo_bench.precise_loop import sleep_until
from octavo_bench.soak.answers import Answer
from octavo_bench.soak.questions import Absurd, Question

# Of those that mean to hang up some are answered before: a fifth of all requests remains.
HANG_UPS, ABSURD = 0.24, 0.05
_SALTS = (None, None, "a", "b")
_NOTED = 20  # failures of a kind that are kept in words


@dataclass(slots=True)
class Tally:
    """What became of the requests.

    Attributes:
        counts: answered, hung up, absurd (refused as they should be), and the failures by kind.
        failures: the first of them, in words.
        latencies: of the last answers, in seconds.
    """

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=512))

    def fail(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        if len(self.failures) < _NOTED:
            self.failures.append(f"{kind}: {what[:500]}")

    @property
    def latency(self) -> float:
        """The median of the last answers."""
        return sorted(self.latencies)[len(self.latencies) // 2] if self.latencies else 1.0


class Driver:
    """
    Args:
        expected: the bits of each question's answer on a quiet machine, in the order of the questions.
        keys: API keys; each request carries one of them.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base: str,
        questions: Sequence[Question],
        absurd: Sequence[Absurd],
        expected: Sequence[bytes],
        keys: Sequence[str],
        seed: int,
    ) -> None:
        self.tally = Tally()
        self.held = 0.0  # seconds in which arrivals were held back: as much as allowed was under way
        self._session, self._base = session, base
        self._questions, self._absurd, self._expected, self._keys = questions, absurd, expected, keys
        self._draw = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids: set[str] = set()

    @property
    def under_way(self) -> int:
        return len(self._tasks)

    @property
    def ended(self) -> int:
        return sum(self.tally.counts.values())

    async def together(self, questions: Iterable[int]) -> None:
        """Asks these at the same time and waits for all answers."""
        await asyncio.gather(*(self._asked(index, hangs_up=False) for index in questions))

    async def arrive(self, rate: float, seconds: float, most: int) -> None:
        """Poisson arrivals at ``rate`` for so long; none while ``most`` requests are under way."""
        end = due = time.perf_counter()
        end += seconds
        while due < end:
            if self.under_way >= most:
                begin = time.perf_counter()
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                due = time.perf_counter()
                self.held += due - begin
            self._start()
            due += self._draw.expovariate(rate)
            await sleep_until(min(due, end), time.perf_counter)

    async def saturate(self, seconds: float, most: int) -> float:
        """Keeps ``most`` requests under way, for ``seconds`` at least and until so many have ended; returns how many
        ended per second behind the first ones."""
        begin, ended = time.perf_counter(), self.ended
        since: float | None = None
        while True:
            while self.under_way < most:
                self._start()
            await asyncio.wait(self._tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
            now = time.perf_counter()
            if since is None:
                if self.ended >= ended + most // 2:
                    since, ended = now, self.ended
            elif now > begin + seconds and self.ended > ended + most:
                return (self.ended - ended) / (now - since)

    async def drain(self) -> None:
        """Waits for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self) -> None:
        kind = self._draw.random()
        if kind < ABSURD:
            work = self._refused(self._draw.choice(self._absurd))
        else:
            work = self._asked(self._draw.randrange(len(self._questions)), kind < ABSURD + HANG_UPS)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _asked(self, index: int, hangs_up: bool) -> None:
        question, draw = self._questions[index], self._draw
        # Who hangs up does so after some chunks or after some time, in whatever phase its request is then.
        chunks = draw.randrange(8) if hangs_up and question.streamable and draw.random() < 0.5 else None
        stream = question.streamable and (chunks is not None or draw.random() < 0.5)
        patience = draw.random() * 0.7 * self.tally.latency if hangs_up and chunks is None else None
        salt = draw.choice(_SALTS)
        fields = {"priority": draw.randint(-1, 1), **({"cache_salt": salt} if salt else {})}
        body = question.encode(stream=stream, **fields)
        answer, begin = Answer(), time.perf_counter()
        try:
            received = self._receive(question.path, body, answer, chunks)
            complete = await asyncio.wait_for(received, patience)
        except asyncio.TimeoutError:
            complete = False
        except (aiohttp.ClientError, OSError, RuntimeError) as e:
            self.tally.fail("lost", f"question {index}: {type(e).__name__}: {e}")
            return
        except ValueError as e:
            self.tally.fail("malformed", f"question {index}: {e}")
            return
        if not complete:
            self.tally.counts["hung up"] += 1
            return
        self.tally.latencies.append(time.perf_counter() - begin)
        self._judge(index, answer)

    def _judge(self, index: int, answer: Answer) -> None:
        if answer.twice or answer.id in self._ids:
            self.tally.fail("duplicated", f"question {index}: {answer.id}")
        elif problem := answer.problem():
            self.tally.fail("lost", f"question {index}: {problem}")
        elif answer.bits() != self._expected[index]:
            self.tally.fail("wrong", f"question {index}: {answer.bits()!r}, not {self._expected[index]!r}")
        else:
            self.tally.counts["answered"] += 1
        self._ids.add(answer.id)

    async def _receive(self, path: str, body: bytes, answer: Answer, chunks: int | None) -> bool:
        """Takes the answer in; False where the client hung up after ``chunks`` events."""
        key, name = self._draw.choice(self._keys), f"soak-{self._draw.getrandbits(64):x}"
        headers = {"Authorization": f"Bearer {key}", "X-Request-Id": name}
        url = self._base + path
        async with self._session.post(url, data=body, headers=headers, read_bufsize=READ_BUFFER) as response:
            if response.status != 200:
                raise RuntimeError(f"HTTP {response.status}: {(await response.read())[:300]!r}")
            if response.headers.get("X-Request-Id") != name:
                raise RuntimeError("the answer of another request")
            if "event-stream" not in response.headers["Content-Type"]:
                answer.add(await response.read())
                return True
            done = False
            events = 0
            async for line in response.content:
                if not line.startswith(b"data:"):
                    continue
                if done:
                    raise RuntimeError("something follows the end of a stream")
                if chunks is not None and events >= chunks:
                    response.close()
                    return False
                events += 1
                done = line[5:].strip() == b"[DONE]"
                if not done:
                    answer.add(line[5:])
            if not done:
                raise RuntimeError("the stream was cut")
            return True

    async def _refused(self, absurd: Absurd) -> None:
        headers = dict(absurd.headers)
        if absurd.keyed:
            headers["Authorization"] = f"Bearer {self._draw.choice(self._keys)}"
        try:
            async with self._session.request(
                absurd.method, self._base + absurd.path, data=absurd.body, headers=headers
            ) as response:
                raw = await response.read()
                status = response.status
            error = msgspec.json.decode(raw)["error"]
            if status != absurd.status or not error["message"]:
                self.tally.fail(
                    "not refused", f"{absurd.name}: HTTP {status}, not {absurd.status}: {raw[:200]!r}"
                )
                return
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as e:
            self.tally.fail("not refused", f"{absurd.name}: {type(e).__name__}: {e}")
            return
        self.tally.counts["absurd"] += 1


async def quiet_answers(
    session: aiohttp.ClientSession, base: str, questions: Sequence[Question], key: str
) -> list[bytes]:
    """The bits of each question's answer, asked one after the other. Raises ``RuntimeError`` where there is none."""
    out = []
    for question in questions:
        answer = Answer()
        headers = {"Authorization": f"Bearer {key}"}
        async with session.post(base + question.path, data=question.encode(), headers=headers) as response:
            raw = await response.read()
            if response.status != 200:
                raise RuntimeError(f"{question.path} answers HTTP {response.status}: {raw[:300]!r}")
        answer.add(raw)
        if problem := answer.problem():
            raise RuntimeError(problem)
        out.append(answer.bits())
    return out
