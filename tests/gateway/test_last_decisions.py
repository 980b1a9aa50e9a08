"""What a scheduler did lately: over HTTP, in the report of a crash, and replayed. Nothing of what was said is in it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from decision_replay import counted_from, from_a_start, replay
from scripted import Script, ScriptedEngine, spoken
from served import octavo_serve
from serving import Client, run, serving

from octavo.engine_args import EngineArgs
from octavo_gateway.protocol.decisions import Decisions
from octavo_gateway.server.served_engine import ServedEngine

PATH = "/debug/decisions"
SECRET = "my-very-private-words"
IDS = range(20_000, 40_000)  # of prompts: no other number of a dump is so large


def check_replay(dump: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> None:
    rest = counted_from(from_a_start(dump), 1)
    assert replay(rest, {**config, "groups": [tuple(group) for group in config["groups"]]}) == rest


def prompt(i: int, length: int) -> list[int]:
    return [IDS[i + k * 97] for k in range(length)]


def test_the_answer_has_the_documented_shape_and_no_text() -> None:
    async def scenario() -> None:
        async with serving(
            ScriptedEngine(Script(steps=spoken("fine"))), server={"debug_cache": True}
        ) as client:
            await client.chat(messages=[{"role": "user", "content": SECRET}], user=SECRET)
            async with client.session.get(client.base + PATH) as r:
                raw = await r.read()
        dump = msgspec.json.decode(raw, type=Decisions)
        assert dump.model == "tiny" and dump.config.groups == [[64, 0]]
        (added,) = dump.decisions
        assert added.__struct_config__.tag == "add" and added.step == 1
        assert SECRET.encode() not in raw

    run(scenario())


@pytest.mark.slow
def test_a_dump_fetched_over_http_replays(smollm2: Path) -> None:
    """Preemption, several sequences, forced text, priorities and a client that leaves, in a ring that began before."""

    async def ask(client: Client, i: int, length: int, **fields: Any) -> None:
        body = {"prompt": prompt(i, length), "ignore_eos": True, "temperature": 1, "seed": i, **fields}
        status, _, answer = await client.post("/v1/completions", body)
        assert status == 200, answer

    async def scenario() -> None:
        arguments = EngineArgs.from_kwargs(
            {
                "model": str(smollm2),
                "max_model_len": 256,
                "max_num_seqs": 6,
                "max_num_batched_tokens": 64,
                "num_gpu_blocks_override": 26,
                "threads": 1,
            }
        )
        engine = await asyncio.to_thread(lambda: ServedEngine(arguments))
        try:
            async with serving(engine, server={"debug_cache": True}) as client:
                await ask(client, 1, 20, max_tokens=4)
                form = {"json": {"type": "object", "properties": {"a_long_name": {"enum": ["so it is"]}},
                                 "required": ["a_long_name"], "additionalProperties": False}}  # fmt: skip
                left = asyncio.ensure_future(ask(client, 2, 30, max_tokens=200))
                tasks = [
                    asyncio.ensure_future(ask(client, 10 + i, 10 + 9 * i, max_tokens=60, priority=i % 3))
                    for i in range(9)
                ]
                tasks += [
                    asyncio.ensure_future(ask(client, 30, 12, max_tokens=30, n=3)),
                    asyncio.ensure_future(ask(client, 40, 12, max_tokens=40, structured_outputs=form)),
                ]
                await asyncio.sleep(0.3)
                left.cancel()
                await asyncio.gather(*tasks)
                status, _, dump = await client.get(PATH)
        finally:
            engine.shutdown()
        assert status == 200
        kinds = {event["kind"] for event in dump["decisions"]}
        assert kinds >= {"add", "plan", "admit", "commit", "end", "preempt", "cancel", "forced"}
        check_replay(dump["decisions"], dump["config"])
        numbers = [value for event in dump["decisions"] for value in event.values() if isinstance(value, int)]
        assert max(numbers) < IDS.start

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_the_report_of_a_crash_has_the_last_decisions(number: signal.Signals, tmp_path: Path) -> None:
    flags = ("--max-model-len", "1024", "--threads", "1", "--crash-dir", str(tmp_path))
    gone = pytest.raises(AssertionError, match="it is gone")
    with ThreadPoolExecutor(1) as pool, gone, octavo_serve("smollm2", *flags) as served:
        for i in range(3):
            assert served.complete(prompt=prompt(i, 20 + i), max_tokens=5)[0] == 200
        stream = pool.submit(served.complete, prompt=prompt(9, 30), max_tokens=900, ignore_eos=True)
        deadline = time.monotonic() + 60
        while served.metric("octavo:engine_steps_total") < 3 * 5 + 20 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.2)  # of a killed process the notes remain that it takes every second
        os.kill(served.pid, number)
        assert isinstance(stream.exception(10), (OSError, http.client.HTTPException))
        raise AssertionError("it is gone")
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"kind"')]
    config = json.loads(text.partition("\nscheduler ")[2].splitlines()[0])
    assert lines[0]["kind"] == "add" and [e["prompt_tokens"] for e in lines if e["kind"] == "add"] == [
        20,
        21,
        22,
        30,
    ]
    assert lines[-1]["step"] > 3 * 5 + 10  # of the stream
    check_replay(lines, config)
    assert ("Fatal Python error" in text) == (number != signal.SIGKILL)
    assert max(v for e in lines for v in e.values() if isinstance(v, int)) < IDS.start
