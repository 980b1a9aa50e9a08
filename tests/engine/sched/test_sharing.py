"""What requests share: cached prefixes, prefixes under way, branches; and what they never share."""

import random

import pytest
from kv_world import World

FULL_BLOCKS, REST = 62, 8  # of 1,000 tokens in blocks of 16


def random_prompt(length, seed=0):
    return random.Random(seed).choices(range(1000), k=length)


def prefix_tokens_computed(world, requests, extra=0):
    """Prompt positions computed in all; each request's further rows (one per token drawn after the first) left out."""
    return world.computed - sum(
        len(r.done[s]) - len(r.prompt) - 1 for r in requests for s in r.done if len(r.done[s]) > len(r.prompt)
    )


@pytest.mark.parametrize(("budget", "depth"), [(512, 1), (512, 2), (496, 1), (64, 1), (4096, 2)])
def test_a_burst_of_equal_prompts_computes_its_prefix_once(budget, depth):
    world = World(groups=[(400, 0)], max_tokens_per_step=budget, depth=depth)
    for _ in range(100):
        world.add(random_prompt(1000), max_new=3)
    most_live = 0
    while world.step(depth=depth):
        most_live = max(most_live, world.scheduler.stats()["live_blocks"])
    assert prefix_tokens_computed(world, world.finished.values()) <= 1.1 * 1000
    # 62 full blocks held once, a tail of its own for each: the rest of 8 tokens was copied, not computed.
    assert most_live <= FULL_BLOCKS + 100
    assert world.copied_slots == 99 * REST
    assert len({tuple(r.done[s]) for r in world.finished.values() for s in r.done}) == 1


@pytest.mark.parametrize("cancel_after", [1, 2])
def test_the_first_follower_takes_over_when_the_leader_is_cancelled(cancel_after):
    world = World(groups=[(400, 0)], max_tokens_per_step=256)
    ids = [world.add(random_prompt(1000), max_new=3) for _ in range(100)]
    for _ in range(cancel_after):
        world.step()
    world.cancel(ids[0])
    world.run()
    assert prefix_tokens_computed(world, world.finished.values()) <= 1.1 * 1000
    assert len(world.finished) == 99


def test_a_leader_that_fails_is_replaced_in_the_same_way():
    world = World(groups=[(400, 0)], max_tokens_per_step=256)
    for _ in range(10):
        world.add(random_prompt(1000), max_new=3)
    world.step()
    leader = world.plan()["rows"][0]["seq"]
    world.commit(faults=[leader])
    world.run()
    assert len(world.finished) == 9
    assert prefix_tokens_computed(world, world.finished.values()) <= 1000 + 256 + 9


def test_prompts_that_part_inside_a_block_copy_what_they_have_in_common():
    world = World(groups=[(400, 0)], max_tokens_per_step=512)
    stem = random_prompt(1000)
    for i in range(20):
        world.add([*stem, *random_prompt(30, seed=i + 1)], max_new=1)
    world.run()
    assert world.computed == 1000 + 20 * 30
    assert world.copied_slots == 19 * REST


def test_followers_start_in_the_leaders_last_step_when_their_prefix_ends_at_a_block():
    world = World(groups=[(400, 0)], max_tokens_per_step=512)
    stem = random_prompt(160)
    for i in range(5):
        world.add([*stem, *random_prompt(10, seed=i + 1)], max_new=1)
    plan = world.plan()
    assert [(r["first_pos"], r["n_tokens"]) for r in plan["rows"]] == [(0, 170)] + [(160, 10)] * 4
    assert len({tuple(r["tables"][0][:10]) for r in plan["rows"]}) == 1
    world.commit()
    world.run()


def test_a_follower_holds_nobody_up():
    world = World(groups=[(400, 0)], max_tokens_per_step=64)
    stem = random_prompt(500)
    world.add(stem)
    world.add(stem)
    world.add([7, 8, 9])
    world.plan()
    world.commit()
    plan = world.plan()
    assert {r["seq"] for r in plan["rows"]} == {1}  # the leader's chunk fills the step
    world.commit()
    assert world.scheduler.stats()["waiting"] == 2
    while world.requests:
        plan = world.plan()
        world.commit()
        if any(r["seq"] == 3 for r in plan["rows"]):
            break
    assert 2 in world.requests
    world.run()


@pytest.mark.parametrize(("followed", "victim"), [(False, 2), (True, 1)])
def test_a_leader_inherits_a_more_urgent_followers_priority(followed, victim):
    world = World(groups=[(12, 0)], max_tokens_per_step=3, watermark=0.0)
    leader = random_prompt(120, seed=2)
    world.add(random_prompt(47, seed=1), priority=5, max_new=100)
    world.add(leader, priority=9)
    rows = []
    while len(rows) < 2:
        rows = world.plan()["rows"]
        world.commit()
    if followed:
        world.add(leader, priority=0)
    while world.scheduler.stats()["preemptions"] == 0:
        rows = world.plan()["rows"]
        world.commit()
    assert victim not in {r["seq"] for r in rows}
    world.run()


def test_namespaces_share_nothing():
    world = World(groups=[(400, 0)], max_tokens_per_step=512)
    prompt = random_prompt(100)
    for ns in (1, 2, 1):
        world.add(prompt, ns=ns, max_new=1)
        world.run()
    assert list(world.cached_tokens.values()) == [0, 0, 99]
    world.add(prompt, ns=3, max_new=1)
    world.add(prompt, ns=4, max_new=1)
    rows = world.plan()["rows"]
    assert [r["first_pos"] for r in rows] == [0, 0]
    assert not set(rows[0]["tables"][0]) & set(rows[1]["tables"][0])
    world.commit()


def test_without_prefix_caching_nothing_is_shared_or_kept():
    world = World(groups=[(400, 0)], prefix_caching=False)
    for _ in range(3):
        world.add(random_prompt(100), max_new=1)
    world.run()
    assert world.computed == 300
    assert world.scheduler.stats()["cached_blocks"] == 0


def test_branches_share_the_prompt_and_copy_its_last_block_on_write():
    world = World(groups=[(400, 0)])
    world.add(random_prompt(1000), n=8, max_new=40)
    world.step()  # the first half of the prompt
    world.step()
    assert world.scheduler.stats()["live_blocks"] == 63
    plan = world.plan()
    assert len(plan["copies"]) == 7  # the last branch writes in place
    assert all(slots == REST for _, _, _, slots in plan["copies"])
    assert world.scheduler.stats()["live_blocks"] == FULL_BLOCKS + 8
    world.commit()
    while world.step():
        live = world.scheduler.stats()["live_blocks"]
        if live:
            longest = max(len(t) for t in world.requests[1].branches.values())
            assert live == FULL_BLOCKS + 8 * (-(-(longest - 1) // 16) - FULL_BLOCKS)


def test_prompt_logits_recompute_every_row_and_write_no_shared_slot():
    world = World(groups=[(400, 0)], max_tokens_per_step=64)
    prompt = random_prompt(200)
    world.add(prompt, max_new=1)
    world.run()
    world.add(prompt, max_new=1, prompt_logits=True)
    rows = []
    while (plan := world.plan()) is not None:
        rows += plan["rows"]
        world.commit()
    assert [(r["first_pos"], r["n_tokens"], r["logits"], r["logits_first"]) for r in rows] == [
        (0, 64, "range", 0), (64, 64, "range", 0), (128, 64, "range", 0), (192, 8, "range", 0),
    ]  # fmt: skip
    assert all(slot == -1 for r in rows for slot in r["slots"][0])
    assert world.cached_tokens[2] == 0


def test_a_token_past_a_late_stop_is_never_indexed():
    world = World(groups=[(64, 0)], depth=2)
    prompt = random_prompt(32)
    world.add(prompt, max_new=50, stop_at=16)
    world.run(depth=2)
    (answer,) = world.finished[1].done.values()
    # The step after the stop was in flight already; what it wrote belongs to nobody.
    assert world.computed == 32 + 16
    world.add([*answer, 1, 2, 3], max_new=1)
    world.run(depth=2)
    assert world.cached_tokens[2] == len(answer) - 1


def test_an_answer_is_found_by_the_next_turn():
    world = World(groups=[(64, 0)])
    world.add(random_prompt(40), max_new=30)
    world.run()
    (answer,) = world.finished[1].done.values()
    world.add([*answer, *random_prompt(20, seed=1)], max_new=2)
    world.run()
    assert world.cached_tokens[2] == 40 + 30 - 1  # the last token was drawn and never computed


def test_rows_with_one_prefix_form_a_group():
    world = World(groups=[(400, 0)], max_tokens_per_step=2048)
    stem = random_prompt(300)
    for i in range(6):
        world.add([*stem, i], max_new=20)
    for i in range(3):
        world.add(random_prompt(200, seed=9 + i), max_new=20)
    world.add(random_prompt(140, seed=20), n=2, max_new=20)
    for _ in range(6):
        world.step()
    plan = world.plan()
    seqs = [
        ([plan["rows"][r]["seq"] for r in rows], partitions) for rows, partitions in plan["prefix_groups"]
    ]
    assert ([1, 2, 3, 4, 5, 6], 2) in seqs
    assert ([10, 11], 1) in seqs
    assert len(seqs) == 2


def test_a_copy_never_reads_what_its_step_still_writes():
    """A fork of a sequence that starts behind a leader in this step: its source's block is not written yet."""
    world = World(
        groups=[(12, 0)], block_size=4, max_model_len=50, vocab=2, max_tokens_per_step=7, max_seqs=3
    )
    gone = world.add([0], max_new=1)
    world.cancel(gone)
    first, *_ = [world.add([0, 0, 0, 0, 0], max_new=1) for _ in range(4)]
    root = min(world.requests[first].branches)
    fork = world.add([0, 0, 0, 0], max_new=1, source=root)
    world.add([0], max_new=1, source=min(world.requests[fork].branches))
    world.cancel(first)
    world.run(depth=1)


def test_a_window_holds_what_is_read_where_no_block_is_left_for_a_copy():
    """The second prompt would copy half a block and start behind it; without a block for it it starts before, where
    its window reads more."""
    world = World(
        groups=[(7, 0), (8, 6)],
        block_size=4,
        max_model_len=50,
        max_tokens_per_step=64,
        max_seqs=2,
        watermark=0.0,
    )
    for _ in range(2):
        world.add(random_prompt(27), max_new=1)
        world.run(depth=1)
    assert len(world.finished) == 2
