"""Who is served, who is refused and who waits: admission, capacity, preemption, order, errors."""

import random

import pytest
from kv_world import World
from octavo._engine import Scheduler


def random_prompt(length, seed=0):
    return random.Random(seed).choices(range(1000), k=length)


POOL = 50 * 16  # tokens


@pytest.mark.parametrize("length", range(POOL - 2, POOL + 3))
def test_every_prompt_length_around_the_pool_is_served_or_refused(length):
    world = World(groups=[(50, 0)])
    world.add(random_prompt(30, seed=1))
    world.run()  # a pool full of cached blocks is as good as an empty one
    for i in range(3):
        refusal = world.scheduler.check([1], random_prompt(length, seed=i))
        # The prompt and one generated token.
        if length + 1 <= POOL:
            assert refusal is None
            world.add(random_prompt(length, seed=i), max_new=1)
            world.run()
            assert world.finished[world.next_id - 1].failed is None
        else:
            code, param, message, value, limit = refusal
            assert (code, param, value, limit) == ("capacity", "prompt", length + 1, POOL)
            assert f"{POOL} tokens" in message and str(length) in message


def test_followers_of_a_refused_request_are_served():
    world = World(groups=[(50, 0)])
    assert world.scheduler.check([1], [1] * 1000) is not None
    with pytest.raises(Exception, match="800 tokens"):
        world.add([1] * 1000)
    for i in range(10):
        world.add(random_prompt(40, seed=i))
    world.run()
    assert all(r.failed is None for r in world.finished.values())


def test_what_can_never_be_served_is_refused_with_the_numbers():
    scheduler = Scheduler(groups=[(1000, 0)], max_model_len=256, max_seqs=4)
    code, param, message, value, limit = scheduler.check([1], [1] * 256)
    assert (code, param, value, limit) == ("context_length_exceeded", "prompt", 256, 256)
    assert "maximum context length is 256 tokens" in message
    assert scheduler.check([1], [1] * 255) is None
    assert scheduler.check([1], [])[:2] == ("invalid_argument", "prompt")
    assert scheduler.check([1], [1], max_new_tokens=0)[:2] == ("invalid_argument", "max_tokens")
    code, param, _, value, limit = scheduler.check([1, 2, 3, 4, 5], [1])
    assert (code, param, value, limit) == ("invalid_argument", "n", 5, 4)
    assert scheduler.check([], [1])[:2] == ("invalid_argument", "n")


def test_a_window_group_needs_no_more_blocks_than_its_window():
    scheduler = Scheduler(groups=[(1000, 0), (6, 64)], max_model_len=4096)
    assert scheduler.check([1], [1] * 3000) is None
    world = World(groups=[(100, 0), (6, 64)])
    world.add(random_prompt(1000), max_new=30)
    world.run()
    assert world.finished[1].failed is None


@pytest.mark.parametrize("depth", [1, 2])
def test_preempted_requests_draw_the_same_tokens(depth):
    answers = []
    for blocks in (400, 23):
        world = World(groups=[(blocks, 0)], depth=depth)
        for i in range(4):
            world.add(random_prompt(40, seed=i), max_new=200)
        world.run(depth=depth)
        answers.append({r.id: list(r.done.values()) for r in world.finished.values()})
        preemptions = world.scheduler.stats()["preemptions"]
    assert preemptions > 0
    assert answers[0] == answers[1]


def test_branches_are_preempted_and_resumed_together():
    answers = []
    for blocks in (400, 26):
        world = World(groups=[(blocks, 0)])
        for i in range(3):
            world.add(random_prompt(50, seed=i), n=3, max_new=60)
        world.run()
        answers.append({r.id: sorted(r.done.items()) for r in world.finished.values()})
        preemptions = world.scheduler.stats()["preemptions"]
    assert preemptions > 0
    assert answers[0] == answers[1]


def test_a_preempted_request_comes_back_before_later_arrivals():
    def steps_to_finish(trickle):
        world = World(groups=[(23, 0)])
        first = [world.add(random_prompt(40, seed=i), max_new=200) for i in range(2)]
        steps = 0
        while not set(first) <= set(world.finished):
            if trickle and steps % 5 == 0:
                world.add(random_prompt(20, seed=100 + steps), max_new=10)
            world.step()
            steps += 1
        assert world.scheduler.stats()["preemptions"] > 0
        return steps

    assert steps_to_finish(trickle=True) <= 2 * steps_to_finish(trickle=False)


def test_the_latest_arrival_of_the_lowest_priority_is_preempted():
    world = World(groups=[(12, 0)], watermark=0.0)
    world.add(random_prompt(40, seed=1), max_new=100, priority=1)
    world.add(random_prompt(40, seed=2), max_new=100, priority=0)
    world.add(random_prompt(40, seed=3), max_new=100, priority=0)
    world.step()
    world.step()
    gone = []
    while len(gone) < 2:
        running = {r["seq"] for r in world.plan()["rows"]}
        gone += [seq for seq in (1, 2, 3) if seq not in running and seq not in gone]
        world.commit()
    assert gone == [1, 3]
    world.run()


def test_smaller_priority_is_admitted_first_then_arrival():
    world = World(groups=[(400, 0)], max_tokens_per_step=10)
    for priority in (1, 0, 1, 0):
        world.add(random_prompt(10, seed=world.next_id), priority=priority, max_new=1)
    order = []
    while (plan := world.plan()) is not None:
        order += [r["seq"] for r in plan["rows"]]
        world.commit()
    assert order == [2, 4, 1, 3]


def test_a_request_that_outgrows_the_pool_alone_fails_with_the_numbers():
    world = World(groups=[(4, 0)])
    grows = world.add(random_prompt(40), max_new=100)
    short = world.add(random_prompt(20, seed=1), max_new=2)
    world.run()
    code, param, message, value, limit = world.finished[grows].failed
    assert (code, param, value, limit) == ("capacity", "kv_cache", 65, 64)
    assert "4 of 4 KV blocks" in message and "64 tokens" in message
    assert world.finished[short].failed is None


def test_a_sequence_left_unfinished_at_the_window_is_failed():
    scheduler = Scheduler(groups=[(10, 0)], max_model_len=8)
    scheduler.add(1, [1], [1] * 6, max_new_tokens=100)
    for _ in range(2):
        scheduler.commit(scheduler.plan()["step"], [(1, 1, 5, False)])
    ((request, (code, _, message, value, limit)),) = scheduler.take_failures()
    assert (request, code, value, limit) == (1, "context_length_exceeded", 8, 8)
    assert "maximum context length is 8 tokens" in message
    assert not scheduler.has_work()


def test_decodes_come_first_and_chunks_fill_the_budget():
    world = World(groups=[(400, 0)], max_tokens_per_step=32)
    world.add(random_prompt(10, seed=1), max_new=20)
    world.step()
    world.add(random_prompt(100, seed=2), max_new=2)
    world.add(random_prompt(8, seed=3), max_new=2)
    chunks = []
    for _ in range(4):
        chunks.append([(r["seq"], r["n_tokens"], r["logits"]) for r in world.plan()["rows"]])
        world.commit()
    assert chunks == [
        [(1, 1, "last"), (2, 31, "none")],
        [(1, 1, "last"), (2, 31, "none")],
        [(1, 1, "last"), (2, 31, "none")],
        [(1, 1, "last"), (2, 7, "last"), (3, 8, "last")],
    ]


def test_a_second_step_takes_its_tokens_from_the_first():
    world = World(groups=[(400, 0)], depth=2)
    world.add(random_prompt(10), max_new=3)
    first, second = world.plan(), world.plan()
    (row,) = second["rows"]
    assert (row["from_step"], row["from_row"], row["tokens"], row["first_pos"]) == (
        first["step"],
        0,
        [-1],
        10,
    )
    assert world.scheduler.plan() is None  # two are in flight
    world.commit()
    third = world.plan()
    assert third["rows"][0]["from_step"] == second["step"]
    world.commit()
    assert world.plan() is None  # the third token, in flight, is the last
    world.run(depth=2)


def test_commits_are_in_order_and_rollback_takes_later_steps_along():
    world = World(groups=[(400, 0)], depth=2)
    world.add(random_prompt(10), max_new=5)
    free = world.scheduler.stats()["free_blocks"]
    first, second = world.plan(), world.plan()
    with pytest.raises(Exception, match="in order"):
        world.scheduler.commit(second["step"], [])
    world.rollback(0)
    assert world.scheduler.stats()["free_blocks"] == free
    world.scheduler.audit()
    with pytest.raises(Exception, match="not in flight"):
        world.scheduler.rollback(first["step"])
    again = world.plan()
    assert again["rows"] == first["rows"]
    world.run(depth=2)


def test_outcomes_are_checked_before_anything_changes():
    scheduler = Scheduler(groups=[(10, 0)], max_model_len=100)
    scheduler.add(1, [1], [1, 2, 3], max_new_tokens=4)
    scheduler.add(2, [2], [3, 2, 1], max_new_tokens=4)
    step = scheduler.plan()["step"]
    for bad in ([(1, 2, 5, False)], [(1, 9, 5, False), (1, 9, 6, False)]):
        with pytest.raises(Exception, match="child"):
            scheduler.commit(step, bad)
        scheduler.audit()
    scheduler.commit(step, [(1, 1, 5, False), (1, 7, 6, False)])  # 2 is not named: it ends
    assert [r["seq"] for r in scheduler.plan()["rows"]] == [1, 7]


def test_configurations_that_make_no_sense_are_refused_by_name():
    good = {"groups": [(10, 0)], "max_model_len": 100}
    for name, value in [
        ("block_size", 0), ("groups", []), ("groups", [(0, 0)]), ("max_tokens_per_step", 0), ("max_seqs", 0),
        ("max_model_len", 1), ("depth", 3), ("watermark", 1.0),
    ]:  # fmt: skip
        with pytest.raises(Exception, match="must be"):
            Scheduler(**{**good, name: value})


@pytest.mark.parametrize("undo", [False, True])
def test_a_fork_does_not_write_into_what_its_parent_wrote_on_meanwhile(undo):
    world = World(groups=[(12, 0)], block_size=4, depth=2)
    world.add([1], max_new=4, beam=True)
    world.add([2], max_new=6)  # keeps a step in flight while the parent is at rest
    world.step(depth=2)
    world.plan()  # the parent's next row is in flight when it forks
    world.commit(choose=lambda k: [0, 0])
    world.plan()
    world.commit()
    world.plan()
    while undo and world.executed < len(world.in_flight):
        world.execute()
    if undo:
        world.rollback(0)
    world.run(depth=2)
    assert len(world.finished[1].done) == 2
    for answer in list(world.finished[1].done.values()):
        world.add(answer[:4], max_new=1)
        world.run(depth=2)


def test_scored_requests_come_back_after_a_preemption_with_a_window():
    """Their prompt is scored already: what they computed beyond it is taken from the cache like anyone's."""
    world = World(groups=[(16, 0), (8, 5)], block_size=4, max_tokens_per_step=16)
    for i in range(3):
        world.add(random_prompt(3, seed=i), max_new=40, prompt_logits=True)
    world.run()
    assert world.scheduler.stats()["preemptions"] > 0
    assert all(r.failed is None for r in world.finished.values())


@pytest.mark.unsanitized("it measures time")
def test_planning_and_committing_a_warm_step_is_quick():
    scheduler = Scheduler(groups=[(6000, 0)], max_model_len=4000, max_tokens_per_step=4096)
    for i in range(32):
        scheduler.add(i, [i], [i] * 500, max_new_tokens=3000)
    scheduler.time_steps(20)
    assert scheduler.time_steps(300) < 30_000  # nanoseconds, the median: far above what an idle core needs


def test_forced_tokens_are_computed_in_one_row_and_preemption_does_not_show():
    answers, steps = [], []
    for blocks, forces in ((400, True), (23, True), (400, False)):
        world = World(groups=[(blocks, 0)])
        if forces:
            world.forced_by = lambda token: range(token, token + token % 4)
        for i in range(4):
            world.add(random_prompt(40, seed=i), max_new=200)
        count = 0
        while world.step():
            count += 1
        steps.append(count)
        answers.append({r.id: list(r.done.values()) for r in world.finished.values()})
        preemptions = world.scheduler.stats()["preemptions"]
        assert (preemptions > 0) == (blocks == 23)
    assert answers[0] == answers[1]
    assert all(len(done[0]) == 240 for done in answers[0].values())
    assert steps[0] < steps[2] * 0.6


def test_forced_tokens_do_not_follow_one_whose_successor_is_in_flight():
    world = World(groups=[(64, 0)], depth=2)
    world.add(random_prompt(20), max_new=50)
    for _ in range(2):
        world.plan()
    world.commit()
    world.plan()
    world.forced_by = lambda token: (1, 2)
    with pytest.raises(Exception, match="in flight"):
        world.commit()
