"""`octavo top`: what it draws, and that it leaves the terminal as it was."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import termios
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, run, serving

from octavo.cli.main import main
from octavo_gateway.protocol.cache import CacheSnapshot
from octavo_gateway.top.block_map import draw
from octavo_gateway.top.frame import REASONS, SLOWED, frame

TOP = (sys.executable, "-c", "import sys; from octavo.cli.main import main; sys.exit(main())", "top")
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def snapshot(
    runs: list[list[int]], waiting: list[dict[str, Any]], running: int = 1, slowed: Sequence[str] = ()
) -> CacheSnapshot:
    total = sum(n for _, n in runs)
    free, cached = (sum(n for h, n in runs if h == kind) for kind in (0, -1))
    counts = {"free_blocks": free, "cached_blocks": cached, "live_blocks": total - free - cached}
    sizes = {"prompt_tokens": 7, "sequences": 1, "tenant": 0, "priority": 0}
    group = {
        "num_blocks": total,
        "window": 0,
        **counts,
        "table_entries": 9,
        "table_tokens": 99,
        "live_tokens": 50,
    }
    return msgspec.convert(
        {
            "model": "tiny",
            "time": 10.0,
            "block_size": 16,
            "total_blocks": total,
            **counts,
            "sharing_factor": 1.5,
            "prefix_tokens_queried": 200,
            "prefix_tokens_saved": 50,
            "prefix_hit_rate": 0.25,
            "preemptions": 3,
            "steps": 120,
            "prompt_tokens": 400,
            "generation_tokens": 1000,
            "groups": [{**group, "map": runs}],
            "running": [
                {
                    "id": i,
                    **sizes,
                    "tokens": 9,
                    "computed": 8,
                    "blocks": 1,
                    "preempted": False,
                    "unread": 0,
                    "reason": slowed[i] if i < len(slowed) else "on_time",
                }
                for i in range(running)
            ],
            "waiting": [{"id": 50 + i, **sizes, **w} for i, w in enumerate(waiting)],
        },
        CacheSnapshot,
    )


def waits(reason: str, leader: int | None = None) -> dict[str, Any]:
    return {"preempted": False, "reason": reason, "leader": leader, "waited": 1.25}


def test_every_reason_has_words() -> None:
    kinds = snapshot(
        [[0, 4]], [waits(reason, 7 if reason == "prefix_in_flight" else None) for reason in REASONS]
    )
    text = "\n".join(frame(kinds, None, "http://x", 100, 40))
    assert all(words in text for words in REASONS.values()) and "is being computed by 7" in text
    slowed = "\n".join(frame(snapshot([[0, 4]], [], 9, list(SLOWED)), None, "http://x", 300, 40))
    assert all(f"1 {words}" in slowed for words in SLOWED.values())


def test_a_frame_says_what_the_snapshot_does() -> None:
    now = snapshot([[2, 3], [1, 1], [-1, 2], [0, 4]], [waits("no_blocks"), waits("behind")])
    before = snapshot([[0, 10]], [])
    before.time, before.generation_tokens, before.steps = 8.0, 800, 20
    lines = frame(now, before, "http://x", 100, 40)
    text = "\n".join(lines)
    for part in (
        "10 blocks of 16 tokens",
        "live 4 (40 %), cached 2 (20 %), free 4 (40 %), sharing 1.50 x",
        "50 of 200 prompt tokens were in the cache (25 %)",
        "1 running, 2 waiting, 3 preemptions, 100 tokens/s, 50.0 steps/s",
        "no blocks",
    ):
        assert part in text
    assert lines[-1] == "222█░░····"


@given(
    runs=st.lists(st.tuples(st.integers(-1, 12), st.integers(1, 500)), min_size=1, max_size=40),
    waiting=st.lists(st.sampled_from(sorted(REASONS)), max_size=60),
    width=st.integers(20, 200),
    height=st.integers(10, 60),
)
def test_a_frame_fits_the_terminal(
    runs: list[tuple[int, int]], waiting: list[str], width: int, height: int
) -> None:
    seen = snapshot([list(r) for r in runs], [waits(reason) for reason in waiting])
    lines = frame(seen, None, "http://x", width, height)
    assert len(lines) <= height and all(len(line) <= width for line in lines)
    drawn, per_cell = draw(seen.groups[0].map, width, height)
    assert len(drawn) <= height and all(len(line) <= width for line in drawn)
    assert sum(map(len, drawn)) == -(-seen.total_blocks // per_cell)


@asynccontextmanager
async def in_a_terminal(*arguments: str) -> Any:
    """`octavo top` on a terminal of its own: its process, and the terminal's other end."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = await asyncio.create_subprocess_exec(
        *TOP,
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TERM": "xterm"},
        preexec_fn=lambda: (os.setsid(), os.close(ours), _control(theirs)),
    )
    try:
        yield process, ours
        assert termios.tcgetattr(theirs) == before
    finally:
        if process.returncode is None:
            process.kill()
        os.close(theirs)
        os.close(ours)


def _control(terminal: int) -> None:
    import fcntl

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


async def read_until(terminal: int, wanted: bytes) -> bytes:
    text = b""
    while wanted not in text:
        text += await asyncio.wait_for(asyncio.to_thread(os.read, terminal, 65536), 20)
    return text


@pytest.mark.parametrize("key", [b"q", pytest.param(b"\x03", marks=pytest.mark.slow)], ids=["q", "ctrl-c"])
def test_it_refreshes_until_a_key_ends_it(key: bytes) -> None:
    async def scenario() -> None:
        slow = ScriptedEngine(Script(steps=spoken("long" * 50), step_seconds=0.2), max_num_seqs=1)
        async with serving(slow, server={"admin_keys": ("admin",)}) as client:
            flags = ("--url", client.base + "/v1", "--api-key", "admin", "--interval", "0.1")
            async with in_a_terminal(*flags) as (process, terminal):
                first = await read_until(terminal, b"q quits")
                assert first.count(ENTER) == 1 and b"nobody waits" in first
                tasks = [asyncio.ensure_future(client.post("/v1/chat/completions", HELLO)) for _ in range(3)]
                await read_until(terminal, b"behind earlier ones")
                os.write(terminal, key)
                assert LEAVE in await read_until(terminal, LEAVE)
                assert await asyncio.wait_for(process.wait(), 10) == 0
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario())


def test_once_prints_one_frame_and_what_is_wrong_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> list[tuple[int, str, str]]:
        out = []
        async with serving(ScriptedEngine(), server={"debug_cache": True, "api_keys": ("k",)}) as client:
            for flags in (("--api-key", "k", "--once"), (), ("--api-key", "k"), ("--interval", "0")):
                code = await asyncio.to_thread(main, ["top", "--url", client.base, *flags])
                out.append((code, *capsys.readouterr()))
        code = await asyncio.to_thread(main, ["top", "--url", client.base])
        out.append((code, *capsys.readouterr()))
        async with serving(ScriptedEngine()) as client:
            code = await asyncio.to_thread(main, ["top", "--url", client.base])
            out.append((code, *capsys.readouterr()))
        return out

    once, no_key, piped, bad, gone, hidden = run(scenario())
    for code, out, err in (once, piped):
        assert code == 0 and "64 blocks of 16 tokens" in out and "\x1b" not in out and not err
    assert no_key[0] == 2 and "give --api-key" in no_key[2]
    assert bad[0] == 2 and "--interval" in bad[2]
    assert gone[0] == 2 and "no answer from http://127.0.0.1" in gone[2]
    assert hidden[0] == 2 and "--debug-cache" in hidden[2]
    assert all(len(err.splitlines()) <= 1 for _, _, err in (no_key, bad, gone, hidden))
