"""`AsyncEngine`: many streams on one loop, ended by whoever stops listening."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from octavo import LLM, AsyncEngine, RequestOutputKind, SamplingParams
from octavo.errors import EngineDeadError, InvalidArgumentError, RefusedError

LONG = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)


@pytest.fixture
def engine(llm: LLM) -> AsyncEngine:
    return AsyncEngine(llm.model)


def params(**kwargs: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": 12, "ignore_eos": True, **kwargs})


async def collect(stream: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in stream]


async def until_idle(engine: AsyncEngine) -> None:
    """Every block is free again, within a second."""
    for _ in range(100):
        stats = engine.stats()
        if not (stats["running"] or stats["waiting"] or stats["live_blocks"]):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(engine.stats())


def test_cumulative_delta_and_final_agree_with_llm(engine: AsyncEngine, llm: LLM) -> None:
    prompt = "The rain in Spain"
    want = llm.generate(prompt, params(logprobs=1), use_tqdm=False)[0].outputs[0]

    async def run(kind: RequestOutputKind) -> list[Any]:
        return await collect(engine.generate(prompt, params(logprobs=1, output_kind=kind)))

    async def all_kinds() -> list[list[Any]]:
        return [await run(kind) for kind in RequestOutputKind]

    cumulative, delta, final = asyncio.run(all_kinds())
    assert len(cumulative) > 1 and len(final) == 1
    assert final[0].outputs[0] == want
    assert cumulative[-1].outputs[0] == want
    growing = [item.outputs[0].token_ids for item in cumulative]
    assert all(a == b[: len(a)] for a, b in itertools.pairwise(growing))
    assert "".join(item.outputs[0].text for item in delta) == want.text
    assert [t for item in delta for t in item.outputs[0].token_ids] == want.token_ids
    assert [p for item in delta for p in item.outputs[0].logprobs] == want.logprobs
    for items in (cumulative, delta):
        assert [item.finished for item in items] == [False] * (len(items) - 1) + [True]
        assert [item.outputs[0].finish_reason for item in items][-2:] == [None, "length"]


def test_deltas_tell_the_end_of_each_choice_once(engine: AsyncEngine) -> None:
    sampling = params(n=3, temperature=1.5, seed=4, max_tokens=40, stop=["a"])
    kinds = (RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY)

    async def run() -> list[Any]:
        clones = [sampling.clone() for _ in kinds]
        for clone, kind in zip(clones, kinds, strict=True):
            clone.output_kind = kind
        return [await collect(engine.generate("The rain", clone)) for clone in clones]

    deltas, (final,) = asyncio.run(run())
    assert len({len(choice.token_ids) for choice in final.outputs}) > 1  # some end before others
    for choice in final.outputs:
        parts = [c for item in deltas for c in item.outputs if c.index == choice.index]
        assert "".join(c.text for c in parts) == choice.text
        assert [t for c in parts for t in c.token_ids] == choice.token_ids
        assert [c.finish_reason for c in parts] == [None] * (len(parts) - 1) + [choice.finish_reason]
    assert all(item.outputs for item in deltas)


def test_many_at_once_equal_each_alone(engine: AsyncEngine, llm: LLM) -> None:
    prompts = [f"Number {i} is" for i in range(24)]
    want = [o.outputs[0].token_ids for o in llm.generate(prompts, params(), use_tqdm=False)]

    async def one(prompt: str) -> Any:
        return (await collect(engine.generate(prompt, params(output_kind=RequestOutputKind.FINAL_ONLY))))[0]

    async def run() -> list[Any]:
        return list(await asyncio.gather(*map(one, prompts)))

    assert [o.outputs[0].token_ids for o in asyncio.run(run())] == want


def test_leaving_the_loop_aborts(engine: AsyncEngine) -> None:
    async def run() -> None:
        async for item in engine.generate("a", LONG):
            if len(item.outputs[0].token_ids) > 3:
                break
        await until_idle(engine)

    asyncio.run(run())


def test_cancelling_the_task_aborts(engine: AsyncEngine) -> None:
    async def run() -> None:
        tasks = [asyncio.ensure_future(collect(engine.generate(f"{i}", LONG))) for i in range(4)]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(r, asyncio.CancelledError) for r in results)
        await until_idle(engine)

    asyncio.run(run())


def test_abort_by_name(engine: AsyncEngine) -> None:
    async def run() -> list[Any]:
        async def abort_soon() -> None:
            await asyncio.sleep(0.2)
            await engine.abort("nobody")
            await engine.abort("mine")

        items, _ = await asyncio.gather(collect(engine.generate("a", LONG, "mine")), abort_soon())
        await until_idle(engine)
        return items

    last = asyncio.run(run())[-1]
    assert last.request_id == "mine" and last.finished and last.outputs[0].finish_reason == "abort"
    assert 0 < len(last.outputs[0].token_ids) < 900


def test_a_request_id_in_use_is_refused(engine: AsyncEngine) -> None:
    async def run() -> None:
        first = engine.generate("a", LONG, "same")
        await anext(first)
        with pytest.raises(InvalidArgumentError, match="'same' is in use"):
            await anext(engine.generate("a", LONG, "same"))
        await first.aclose()
        await collect(engine.generate("a", params(), "same"))
        await until_idle(engine)

    asyncio.run(run())


def test_a_fork_runs_under_its_name_from_the_start_and_ends_unread(engine: AsyncEngine) -> None:
    async def run() -> None:
        root = engine.generate("a", LONG, "root")
        output = await anext(root)
        fork = engine.fork(output, request_id="same")
        with pytest.raises(InvalidArgumentError, match="'same' is in use"):
            engine.fork(output, request_id="same")
        await fork.aclose()  # before its first output was read
        dropped = engine.fork(output, request_id="same")
        del dropped
        kept = engine.fork(output, params(), "same")
        await root.aclose()
        assert (await collect(kept))[-1].finished
        await until_idle(engine)

    asyncio.run(run())


def test_a_request_id_is_in_use_while_its_prompt_is_tokenized(engine: AsyncEngine) -> None:
    async def run() -> None:
        long = "information " * 400  # tokenized in another thread
        results = await asyncio.gather(
            *(collect(engine.generate(long, params(), "same")) for _ in range(3)), return_exceptions=True
        )
        assert [type(r) for r in results[1:]] == [InvalidArgumentError] * 2
        assert results[0][-1].finished
        await collect(engine.generate("a", params(), "same"))

    asyncio.run(run())


def test_abort_while_the_prompt_is_tokenized(engine: AsyncEngine) -> None:
    async def run() -> None:
        answer = asyncio.ensure_future(collect(engine.generate("information " * 400, LONG, "early")))
        await asyncio.sleep(0)
        await engine.abort("early")
        assert (await answer)[-1].outputs[0].finish_reason == "abort"
        assert len(await collect(engine.generate("a", params(), "early"))) > 1
        await until_idle(engine)

    asyncio.run(run())


def test_refusals_are_raised_at_once(engine: AsyncEngine) -> None:
    async def run() -> None:
        with pytest.raises(RefusedError, match="1024"):
            await anext(engine.generate([5] * 3000, params()))
        with pytest.raises(InvalidArgumentError, match="empty"):
            await anext(engine.generate("", params()))
        with pytest.raises(InvalidArgumentError, match="stop_token_ids"):
            await anext(engine.generate("a", params(stop_token_ids=[10**6])))

    asyncio.run(run())


def test_long_prompts_do_not_hold_the_loop(engine: AsyncEngine) -> None:
    async def run() -> float:
        gaps: list[float] = []

        async def tick() -> None:
            loop = asyncio.get_running_loop()
            while True:
                before = loop.time()
                await asyncio.sleep(0.005)
                gaps.append(loop.time() - before)

        ticking = asyncio.ensure_future(tick())
        with pytest.raises(RefusedError):
            await anext(engine.generate("lorem ipsum dolor " * 60_000, params()))
        ticking.cancel()
        return max(gaps)

    assert asyncio.run(run()) < 0.5


def test_the_raw_stream(engine: AsyncEngine) -> None:
    async def run() -> None:
        ids = engine.tokenizer.encode("One two three")
        stream = engine.submit(ids, params())
        tokens: list[int] = []
        text = ""
        while not stream.finished or stream.backlog:
            for delta in await stream.next():
                tokens += delta.token_ids
                text += delta.text
                assert delta.prompt_tokens == len(ids) and delta.choice == 0
        assert len(tokens) == 12 and text == engine.tokenizer.decode(tokens)
        stream.cancel()
        with pytest.raises(EngineDeadError, match="ended"):
            await stream.next()

    asyncio.run(run())


def test_a_reader_that_stops_reading_loses_its_request_alone(engine: AsyncEngine) -> None:
    async def run() -> None:
        slow = engine.submit([5, 6, 7], LONG, max_backlog=4)
        quick = engine.submit([5, 6, 7], params(max_tokens=40))
        while not quick.finished:
            await quick.next()
        await until_idle(engine)
        deltas = await slow.next()
        assert 4 <= len(deltas) <= 5 and deltas[-1].finish == "abort" and slow.finished

    asyncio.run(run())


def test_submitting_from_another_thread(engine: AsyncEngine) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(InvalidArgumentError, match="not attached"):
            engine.submit([5], params(), loop=asyncio.new_event_loop())
        engine.attach()
        streams = await asyncio.gather(
            *(
                asyncio.to_thread(lambda: engine.submit([5, 6], params(max_tokens=3), loop=loop))
                for _ in range(16)
            )
        )
        for stream in streams:
            tokens: list[int] = []
            while not stream.finished or stream.backlog:
                for delta in await stream.next():
                    tokens += delta.token_ids
            assert len(tokens) == 3

    asyncio.run(run())


def test_loops_come_and_go_in_many_threads(engine: AsyncEngine) -> None:
    async def attach() -> None:
        engine.attach()

    failed: list[BaseException] = []

    def come_and_go() -> None:
        try:
            for _ in range(40):
                asyncio.run(attach())
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_one_loop_after_another_and_two_at_once(engine: AsyncEngine) -> None:
    async def run() -> list[int]:
        items = await collect(engine.generate("x", params(output_kind=RequestOutputKind.FINAL_ONLY)))
        return list(items[0].outputs[0].token_ids)

    want = asyncio.run(run())
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(asyncio.run(run()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want] * 3
    assert len(engine._readers) <= 4


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
@pytest.mark.parametrize("forked", [False, True])
def test_closing_the_loop_aborts_and_frees_the_name(engine: AsyncEngine, loops: str, forked: bool) -> None:
    async def begin() -> Any:
        generating = engine.generate("a", LONG, None if forked else "job")
        first = await anext(generating)
        if not forked:
            return generating
        fork = engine.fork(first, request_id="job")
        await anext(fork)
        return generating, fork

    def closed_loop() -> Any:
        loop = pytest.importorskip(loops).new_event_loop()
        kept = loop.run_until_complete(begin())
        loop.close()
        return kept

    kept = closed_loop()  # nothing that needs a loop happens between here and the end of the requests
    for _ in range(100):
        stats = engine.stats()
        if not (stats["running"] or stats["waiting"]):
            break
        time.sleep(0.01)
    assert not (stats["running"] or stats["waiting"])
    assert asyncio.run(collect(engine.generate("a", params(), "job")))[-1].finished
    del kept
    gc.collect()
    assert not engine._requests


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of asyncio, about the loop
def test_a_generator_dropped_after_its_loop_leaves_nothing(engine: AsyncEngine) -> None:
    async def begin() -> Any:
        generating = engine.generate("a", LONG)
        await anext(generating)
        return generating

    for _ in range(3):
        loop = asyncio.new_event_loop()
        generating = loop.run_until_complete(begin())
        loop.close()
        del generating
        gc.collect()
    assert not engine._requests
    asyncio.run(until_idle(engine))


def test_a_task_that_waits_as_its_loop_is_closed_is_told(engine: AsyncEngine) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> Any:
        return engine.submit([1, 2], LONG)

    stream = loop.run_until_complete(begin())
    loop.close()
    with pytest.raises(EngineDeadError, match="loop was closed"):
        asyncio.run(stream.next())


def test_shutdown_ends_what_runs(tiny_llama: Any) -> None:
    engine = AsyncEngine(tiny_llama, skip_tokenizer_init=True)

    async def run() -> None:
        stream = engine.submit([1, 2], SamplingParams(max_tokens=250))
        waiting = asyncio.ensure_future(collect(engine.generate([1, 2], SamplingParams(max_tokens=250))))
        await asyncio.sleep(0)
        engine.shutdown()
        with pytest.raises(EngineDeadError, match="the engine has been shut down"):
            await waiting
        with pytest.raises(EngineDeadError, match="the engine has been shut down"):
            while True:
                await stream.next()
        with pytest.raises(EngineDeadError):
            await anext(engine.generate([1], params()))

    asyncio.run(run())


def test_a_stream_can_be_closed_after_a_shutdown(tiny_llama: Any) -> None:
    engine = AsyncEngine(tiny_llama, skip_tokenizer_init=True)

    async def run() -> None:
        generating = engine.generate([1, 2], SamplingParams(max_tokens=250, ignore_eos=True))
        await anext(generating)
        stream = engine.submit([1, 2], SamplingParams(max_tokens=250))
        engine.shutdown()
        stream.cancel()
        await generating.aclose()

    asyncio.run(run())


def test_uvloop(engine: AsyncEngine) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def run() -> int:
        return len(await collect(engine.generate("x", params())))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) > 1
