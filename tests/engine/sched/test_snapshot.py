"""A snapshot tells what the cache holds, block by block, and why each request waits."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kv_world import World

BLOCK = 16


def reasons(world: World) -> dict[int, str]:
    return {w["id"]: w["reason"] for w in world.scheduler.snapshot()["waiting"]}


def expanded(group: dict[str, Any]) -> list[int]:
    return [holders for holders, blocks in group["map"] for _ in range(blocks)]


def check_counts(group: dict[str, Any]) -> None:
    states = expanded(group)
    assert len(states) == group["num_blocks"]
    assert states.count(0) == group["free_blocks"]
    assert states.count(-1) == group["cached_blocks"]
    assert sum(s > 0 for s in states) == group["live_blocks"]


@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 70), st.integers(1, 12), st.sampled_from([1, 1, 3])),
        min_size=1,
        max_size=8,
    ),
    blocks=st.integers(24, 60),
    windows=st.sampled_from([(0,), (0, 32)]),
)
def test_the_map_is_what_the_tables_of_a_plan_say(
    prompts: list[tuple[int, int, int, int]], blocks: int, windows: tuple[int, ...]
) -> None:
    world = World(groups=tuple((blocks, window) for window in windows), max_tokens_per_step=64)
    for i, (family, length, new, n) in enumerate(prompts):
        world.add([family] * (length // 2) + [10 + i] * (length - length // 2), max_new=new, n=n)
    while (plan := world.plan()) is not None:
        snapshot = world.scheduler.snapshot()
        everyone = len(plan["rows"]) == sum(len(r.branches) for r in running(world, snapshot))
        for g, group in enumerate(snapshot["groups"]):
            check_counts(group)
            assert group["window"] == windows[g]
            if everyone:
                check_tables(plan, g, group)
        world.commit()
    for group in world.scheduler.snapshot()["groups"]:
        check_counts(group)
        assert group["live_blocks"] == group["table_entries"] == group["live_tokens"] == 0


def check_tables(plan: dict[str, Any], g: int, group: dict[str, Any]) -> None:
    """`plan` has a row for every sequence that runs."""
    held: Counter[int] = Counter()
    filled: dict[int, int] = {}
    seen = 0
    for row in plan["rows"]:
        end = row["first_pos"] + row["n_tokens"]
        for i, block in enumerate(row["tables"][g]):
            if block < 0:  # it has left the window
                continue
            slots = min(BLOCK, end - i * BLOCK)
            held[block] += 1
            filled[block] = max(filled.get(block, 0), slots)
            seen += slots
    # A block that is only read by a copy of this step is live and in nobody's table.
    sources = {src for group_, src, _, _ in plan["copies"] if group_ == g}
    states = {block: holders for block, holders in enumerate(expanded(group)) if holders > 0}
    assert {b: n for b, n in states.items() if b in held or b not in sources} == held
    assert group["table_entries"] == sum(held.values())
    assert group["table_tokens"] == seen
    assert group["live_tokens"] == sum(filled.values())


def running(world: World, snapshot: dict[str, Any]) -> list[Any]:
    return [world.requests[r["id"]] for r in snapshot["running"]]


def test_a_request_that_no_plan_has_seen_waits_for_the_next_step() -> None:
    world = World()
    first = world.add([1] * 40)
    assert reasons(world) == {first: "next_step"}
    world.step()
    assert reasons(world) == {}
    (shown,) = world.scheduler.snapshot()["running"]
    assert shown == {
        "id": first, "prompt_tokens": 40, "sequences": 1, "tenant": 0, "priority": 0, "tokens": 41, "computed": 40,
        "blocks": 3, "preempted": False, "reason": "on_time",
    }  # fmt: skip


def test_who_lacks_blocks_and_who_is_behind() -> None:
    world = World(groups=((8, 0),), watermark=0.0)
    world.add([1] * 90, max_new=9)
    large, small = world.add([2] * 60), world.add([3] * 5)
    world.step()
    assert reasons(world) == {large: "no_blocks", small: "behind"}
    late = world.add([4] * 5)
    assert reasons(world) == {large: "no_blocks", small: "behind", late: "behind"}
    urgent = world.add([5] * 5, priority=-1)
    assert reasons(world) == {urgent: "next_step", large: "no_blocks", small: "behind", late: "behind"}


def test_token_budget() -> None:
    world = World(max_tokens_per_step=32)
    world.add([1] * 100)
    second, third = world.add([2] * 10), world.add([3] * 10)
    world.step()
    assert reasons(world) == {second: "token_budget", third: "behind"}
    assert world.scheduler.stats()["queue_waits_for"] == "token_budget"


def test_sequence_limit() -> None:
    world = World(max_seqs=4)
    world.add([1] * 10, n=3, max_new=9)
    second, third = world.add([2] * 10, n=2), world.add([3] * 10)
    world.step()
    assert reasons(world) == {second: "sequence_limit", third: "behind"}


def test_who_waits_for_a_prefix_names_the_leader_and_holds_nobody_up() -> None:
    world = World(max_tokens_per_step=64)
    leader = world.add([1] * 200, max_new=4)
    follower = world.add([1] * 200 + [2])
    other = world.add([3] * 20, max_new=4)
    world.step()
    shown = world.scheduler.snapshot()["waiting"]
    assert [(w["id"], w["reason"], w["leader"]) for w in shown] == [
        (follower, "prefix_in_flight", leader),
        (other, "token_budget", None),
    ]
    while world.scheduler.stats()["waiting"]:
        assert "behind" not in reasons(world).values()
        world.step()


def test_who_has_followed_waits_for_a_seat_once_the_prefix_is_there() -> None:
    world = World(max_seqs=2)
    for _ in range(4):
        world.add([1] * 200, max_new=9)
    world.step()
    assert list(reasons(world).values()) == ["next_step"] * 3
    world.step()
    assert list(reasons(world).values()) == ["sequence_limit", "behind"]


def running_reasons(world: World) -> dict[int, str]:
    return {r["id"]: r["reason"] for r in world.scheduler.snapshot()["running"]}


def test_a_prompt_that_others_leave_fewer_tokens_is_said_to_be_slowed_by_them() -> None:
    world = World(max_tokens_per_step=32)
    first = world.add([1] * 100, max_new=9)
    for _ in range(3):
        world.step()
        assert running_reasons(world) == {first: "on_time"}  # alone: it takes all there is
    world.step()
    second = world.add([2] * 100, max_new=9)
    world.step()
    assert running_reasons(world) == {first: "on_time", second: "token_budget"}
    for _ in range(3):
        world.step()
    assert running_reasons(world) == {first: "on_time", second: "on_time"}  # what was left sufficed


def test_who_is_recomputed_and_who_gives_way() -> None:
    world = World(groups=((12, 0),), watermark=0.0, max_tokens_per_step=32, prefix_caching=False)
    first, second = world.add([1] * 60, max_new=60), world.add([2] * 60, max_new=40)
    seen: dict[int, list[str]] = {first: [], second: []}
    preempted = False
    while world.plan():
        for request, reason in running_reasons(world).items():
            if not seen[request] or seen[request][-1] != reason:
                seen[request].append(reason)
        preempted |= any(w["preempted"] for w in world.scheduler.snapshot()["waiting"])
        world.commit()
    assert preempted and seen[first] == ["on_time"]
    assert seen[second][-2:] == ["recomputing", "on_time"]

    world = World(max_seqs=1, depth=2)
    low = world.add([1] * 20, max_new=50, priority=5)
    world.plan_up_to(2)
    world.add([2] * 20, max_new=5)
    world.commit()
    world.plan_up_to(2)
    assert running_reasons(world) == {low: "giving_way"}
    world.run(depth=2)


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 30), st.integers(0, 2), st.sampled_from([1, 1, 2])),
        min_size=2,
        max_size=9,
    ),
    blocks=st.integers(12, 30),
)
def test_what_is_said_of_running_requests_is_so(
    requests: list[tuple[int, int, int, int]], blocks: int
) -> None:
    budget = 24
    world = World(groups=((blocks, 0),), block_size=8, max_tokens_per_step=budget, max_seqs=6)
    for i, (length, new, priority, n) in enumerate(requests):
        world.add([10 + i] * length, max_new=new, priority=priority, n=n)
    while (plan := world.plan()) is not None:
        tokens = sum(row["n_tokens"] for row in plan["rows"])
        rows = {row["seq"] for row in plan["rows"]}
        for shown in world.scheduler.snapshot()["running"]:
            has_row = bool(rows & set(world.requests[shown["id"]].branches))
            if shown["reason"] == "token_budget":
                assert tokens == budget
            elif shown["reason"] == "no_blocks":
                assert not has_row and tokens < budget
            elif shown["reason"] == "recomputing":
                assert shown["preempted"] and has_row
            elif shown["reason"] == "on_time":
                assert has_row
        world.commit()


def test_branches_share_the_blocks_of_their_prompt() -> None:
    world = World()
    world.add([1] * 64, n=8, max_new=4)
    world.step()
    world.step()
    (group,) = world.scheduler.snapshot()["groups"]
    assert group["table_entries"] == world.scheduler.stats()["table_entries"] == 8 * 5
    assert group["live_blocks"] == 4 + 8
    assert group["live_tokens"] == 64 + 8
    assert group["table_tokens"] == 8 * 65
