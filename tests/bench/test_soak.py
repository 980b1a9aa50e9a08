"""The soak finds what it looks for, and finds nothing of it in the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from octavo.cli import main
from octavo_bench.soak.answers import Answer
from octavo_bench.soak.driver import Driver, quiet_answers
from octavo_bench.soak.questions import CHAT, COMPLETIONS, Absurd, Question, questions
from octavo_bench.soak.trend import BLOCKS, trend


def test_a_trend_is_the_slope_of_theil_and_sen_without_the_largest_rise() -> None:
    draw = np.random.default_rng(1)
    times = np.sort(draw.uniform(0, 100, 5 * BLOCKS))
    values = 3.0 + 0.25 * times + draw.normal(size=5 * BLOCKS)
    found = trend(times.tolist(), values.tolist())
    t, v = (np.median(x.reshape(BLOCKS, 5), axis=1) for x in (times, values))
    v[np.argmax(np.diff(v)) + 1 :] -= np.diff(v).max()
    first, second = np.triu_indices(BLOCKS, 1)
    slope = np.median((v[second] - v[first]) / (t[second] - t[first]))
    assert found.slope == pytest.approx(slope, rel=1e-9)
    assert found.low < slope < found.high
    assert found.growth == pytest.approx(slope * (times[-1] - times[0]))


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_one_step_is_no_growth_and_a_staircase_is(at: float) -> None:
    times = np.arange(180.0)
    noise = np.random.default_rng(3).normal(size=180)
    one = trend(times.tolist(), (noise + 1000 * (times > 180 * at)).tolist())
    assert one.low <= 0 and abs(one.growth) < 10
    stairs = trend(times.tolist(), (noise + 1000 * (times // 30)).tolist())
    assert stairs.low > 0 and stairs.growth > 1000


@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_noise_is_seldom_taken_for_growth_and_growth_is_found(alike: float) -> None:
    """Also where each sample resembles the one before, as memory does."""
    draw = np.random.default_rng(2)
    times = np.arange(200.0)
    wrongly = missed = 0
    for _ in range(200):
        noise = np.zeros(200)
        for i, shock in enumerate(draw.normal(size=200)):
            noise[i] = shock + alike * noise[i - 1]
        wrongly += trend(times.tolist(), noise.tolist()).low > 0
        missed += trend(times.tolist(), (noise + 0.15 * times).tolist()).low < 0
    assert wrongly <= 14 and missed == 0  # 2.5 % of 200 on this side, with room for a small sample


def _choice(index: int, **fields: Any) -> dict[str, Any]:
    return {"index": index, "logprobs": None, "finish_reason": None, **fields}


WHOLE = {
    "id": "a",
    "choices": [
        {"index": 0, "message": {"content": "Hé"}, "token_ids": [5, 6], "finish_reason": "stop",
         "stop_reason": 7, "logprobs": {"content": [{"logprob": -0.1}, {"logprob": -2e-7}]}},
        {"index": 1, "message": {"content": ""}, "token_ids": [], "finish_reason": "length", "logprobs": None},
    ],
}  # fmt: skip
EVENTS = [
    {"id": "a", "choices": [_choice(1, delta={"role": "assistant", "content": ""})]},
    {"id": "a", "choices": [_choice(0, delta={"content": "H"}, token_ids=[5],
                                    logprobs={"content": [{"logprob": -0.1}]})]},
    {"id": "a", "choices": [_choice(1, delta={}, finish_reason="length")]},
    {"id": "a", "choices": [_choice(0, delta={"content": "é"}, token_ids=[6], finish_reason="stop", stop_reason=7,
                                    logprobs={"content": [{"logprob": -2e-7}]})]},
    {"id": "a", "choices": [], "usage": {"total_tokens": 3}},
]  # fmt: skip


def _read(*parts: dict[str, Any]) -> Answer:
    answer = Answer()
    for part in parts:
        answer.add(json.dumps(part).encode())
    return answer


def test_an_answer_has_the_same_bits_whole_and_streamed() -> None:
    whole, streamed = _read(WHOLE), _read(*EVENTS)
    assert whole.bits() == streamed.bits() and whole.problem() is streamed.problem() is None
    for changed in (
        json.dumps(WHOLE).replace("-2e-07", "-3e-07"),
        json.dumps(WHOLE).replace("[5, 6]", "[5, 7]"),
        json.dumps(WHOLE).replace("length", "stop"),
    ):
        assert _read(json.loads(changed)).bits() != whole.bits()
    assert _read(*EVENTS, EVENTS[3]).twice and _read(*EVENTS[:3]).problem() == "choice 0 ended 0 times"
    assert _read({"error": {"message": "x"}}).problem()


def test_questions_are_the_same_each_time_and_of_every_kind() -> None:
    asked = questions(24, 3)
    assert asked == questions(24, 3) and asked != questions(24, 4)
    assert {q.path for q in asked} == {CHAT, COMPLETIONS}
    fields = {name for q in asked for name in q.body}
    assert fields >= {"n", "stop", "logprobs", "echo", "response_format", "seed", "logit_bias", "min_p"}


class Liar:
    """Answers rightly but in one way that ``lie`` names."""

    def __init__(self, lie: str) -> None:
        self.lie, self.count = lie, 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        headers = {"X-Request-Id": request.headers.get("X-Request-Id", "")}
        if body.get("absurd"):
            error = {"error": {"message": "no"}}
            return web.json_response(error, status=200 if self.lie == "takes anything" else 400)
        if self.lie == "refuses":
            return web.json_response({"error": {"message": "full"}}, status=429)
        self.count += 1
        name = "a" if self.lie == "same id" else f"a{self.count}"
        text = "wrong" if self.lie == "bits" else "right"
        end = _choice(0, delta={"content": text}, finish_reason="stop")
        if not body["stream"]:
            end["message"] = end.pop("delta")
            return web.json_response({"id": name, "choices": [end]}, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
        await response.prepare(request)
        event = f"data: {json.dumps({'id': name, 'choices': [end]})}\n\n".encode()
        for _ in range(2 if self.lie == "twice" else 1):
            await response.write(event)
        if self.lie != "cut":
            await response.write(b"data: [DONE]\n\n")
        if self.lie == "goes on":
            await response.write(event)
        return response


@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        ("", ""),
        ("bits", "wrong"),
        pytest.param("same id", "duplicated", marks=pytest.mark.slow),
        pytest.param("twice", "duplicated", marks=pytest.mark.slow),
        pytest.param("goes on", "lost", marks=pytest.mark.slow),
        pytest.param("cut", "lost", marks=pytest.mark.slow),
        pytest.param("refuses", "lost", marks=pytest.mark.slow),
        pytest.param("takes anything", "not refused", marks=pytest.mark.slow),
    ],
)
def test_a_server_that_lies_is_found_out(lie: str, kind: str) -> None:
    question, absurd = Question("/", {}), Absurd("x", 400, b'{"absurd": true}', "/")

    async def scenario() -> None:
        truth, liar = Liar(""), Liar(lie)

        async def answer(request: web.Request) -> web.StreamResponse:
            return await (liar if asking else truth)(request)

        application = web.Application()
        application.router.add_post("/", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        asking = False
        async with aiohttp.ClientSession() as session:
            # The true answer once streamed: whole ones of this server are the same.
            expected = await quiet_answers(session, base, [Question("/", {"stream": False})], "k")
            asking = True
            driver = Driver(session, base, [question], [absurd], expected, ["k"], 1)
            await driver.arrive(200.0, 0.5, 50)
            await driver.drain()
        await runner.cleanup()
        counts = driver.tally.counts
        assert counts["absurd"] + counts["not refused"] > 0
        found = {k for k in ("lost", "wrong", "duplicated", "malformed", "not refused") if counts[k]}
        assert found == ({kind} if kind else set()), driver.tally.failures
        assert bool(driver.tally.failures) == bool(kind)

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.unsanitized("measures memory, and the sanitizers keep freed memory in quarantine")
def test_three_minutes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "soak.json"
    status = main(
        [
            *("bench", "soak", "--seconds", "95", "--trial-seconds", "3", "--questions", "24"),
            *("--max-num-seqs", "16", "--kv-cache-memory", "16MiB", "--folder", str(tmp_path), "--out", str(file)),
        ]
    )  # fmt: skip
    said = capsys.readouterr().out
    assert status == 0, said
    found = json.loads(file.read_text())
    assert found["counts"]["answered"] > 20 and found["counts"]["hung up"] and found["counts"]["absurd"], said
    assert found["preemptions"] > 0 and found["audits"] == found["looks"] > 20, said
