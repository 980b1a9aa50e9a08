"""The scheduler's last decisions can be dumped, and a dump replayed in another scheduler decides the same again."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kv_world import World
from octavo._engine import Scheduler

INPUTS = ("add", "cancel", "commit", "rollback", "limit")


def prompt_of(request: int, length: int) -> list[int]:
    """Nobody else's begins with the same token, so that nothing depends on what was cached."""
    return [request] + [0] * (length - 1)


def replay(dump: list[dict[str, Any]], **config: Any) -> list[dict[str, Any]]:
    scheduler = Scheduler(**config)
    plans: dict[int, dict[str, Any]] = {}
    for at, event in enumerate(dump):
        if event["kind"] == "add":
            first = event["first_sequence"]
            scheduler.add(
                event["request"],
                list(range(first, first + event["sequences"])),
                prompt_of(event["request"], event["prompt_tokens"]),
                priority=event["priority"],
                tenant=event["tenant"],
                max_new_tokens=event["max_new_tokens"],
                prompt_logits=bool(event["prompt_logits"]),
            )
        elif event["kind"] == "cancel":
            scheduler.cancel(event["request"])
        elif event["kind"] == "limit":
            scheduler.limit_steps(event["step_tokens"], event["chunk_tokens"])
        elif event["kind"] == "rollback":
            scheduler.rollback(event["step"])
        elif event["kind"] == "plan":
            plan = scheduler.plan()
            assert (plan is None) == (event["rows"] == 0)
            if plan is not None:
                plans[plan["step"]] = plan
        elif event["kind"] == "commit":
            behind = []
            for later in dump[at + 1 :]:
                if later["kind"] in (*INPUTS, "plan"):
                    break
                behind.append(later)
            ended = {e["sequence"] for e in behind if e["kind"] == "end"}
            faults = [e["sequence"] for e in behind if e["kind"] == "fault"]
            plan = plans[event["step"]]
            outcomes = [
                (plan["rows"][row]["seq"], state, state, state in ended)
                for row, _, state, _ in plan["samples"]
            ]
            scheduler.commit(event["step"], outcomes, faults)
    return scheduler.decisions()


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
    draw = st.tuples(
        st.sampled_from(["add", "add", "step", "step", "step", "cancel", "fault", "rollback", "limit"]),
        st.integers(1, 30),
        st.integers(1, 12),
        st.integers(0, 2),
        st.sampled_from([1, 1, 1, 2, 3]),
    )
    for kind, length, new, small, n in data.draw(st.lists(draw, min_size=5, max_size=50)):
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
    dump = world.scheduler.decisions()
    assert replay(dump, **config) == dump


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
