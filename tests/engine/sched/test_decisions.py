"""The scheduler's last decisions can be dumped, and a dump replayed in another scheduler decides the same again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decision_replay import counted_from, from_a_start, prompt_of, replay
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_world import World

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "step", "step", "step", "cancel", "fault", "rollback", "limit"]),
        st.integers(1, 30),
        st.integers(1, 12),
        st.integers(0, 2),
        st.sampled_from([1, 1, 1, 2, 3]),
    ),
    min_size=5,
    max_size=50,
)


def play(world: World, actions: Sequence[tuple[str, int, int, int, int]], depth: int) -> None:
    for kind, length, new, small, n in actions:
        if kind == "add":
            world.add(
                prompt_of(world.next_id, length), max_new=new, n=n, tenant=small << 62, priority=small % 2,
                prompt_logits=length % 5 == 0,
            )  # fmt: skip
        elif kind == "cancel" and world.requests:
            world.cancel(min(world.requests))
        elif kind == "limit":
            world.scheduler.limit_steps(small * 4, small * 2)
        elif kind == "rollback" and world.in_flight:
            world.rollback(len(world.in_flight) - 1)
        elif kind == "fault" and world.plan_up_to(depth):
            world.commit(faults=[world.in_flight[0]["rows"][0]["seq"]])
        elif kind == "step":
            world.step(depth=depth)
    world.run(depth=depth)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_dump_replayed_decides_the_same_again(data: st.DataObject) -> None:
    depth = data.draw(st.sampled_from([1, 2]))
    config: dict[str, Any] = {
        "groups": [(data.draw(st.integers(10, 40)), 0)],
        "block_size": 4,
        "max_model_len": 60,
        "max_tokens_per_step": data.draw(st.sampled_from([8, 32])),
        "max_seqs": data.draw(st.integers(3, 8)),
        "max_seqs_per_tenant": data.draw(st.sampled_from([0, 3])),
        "ageing_steps": data.draw(st.sampled_from([2, 1000])),
        "depth": depth,
    }
    world = World(**config)
    if depth == 1:
        world.forced_by = lambda token: [token] * (token % 4 // 3)
    play(world, data.draw(ACTIONS), depth)
    dump = world.scheduler.decisions()
    assert replay(dump, config) == dump
    # What is left of a ring begins anywhere: it is replayed from where nothing was there.
    cut = data.draw(st.integers(1, len(dump)))
    world.scheduler.limit_steps(0, 0)
    play(world, [("add", 9, 3, 1, 1), *data.draw(ACTIONS)], depth)
    rest = from_a_start(world.scheduler.decisions()[cut:])
    assert replay(counted_from(rest, 1), config) == counted_from(rest, 1)


def test_the_ring_is_bounded_and_keeps_the_last() -> None:
    world = World()
    for _ in range(20):
        for _ in range(40):
            world.add([world.next_id, 0], max_new=2)
        world.run()
    dump = world.scheduler.decisions()
    assert len(dump) == 2048
    assert [d["request"] for d in dump if d["kind"] == "end"][-1] == 800
    assert [d["step"] for d in dump] == sorted(d["step"] for d in dump)
