"""A request that forks a running sequence shares its blocks, indexed or not."""

import pytest
from kv_world import World

PROMPT = list(range(100, 140))


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("position", [48, 45, 17, 1])
def test_a_fork_takes_over_full_blocks_and_copies_only_the_last(caching, position):
    world = World(prefix_caching=caching)
    world.add(PROMPT, max_new=20)
    (seq,) = world.owner
    while len(world.scheduler.tokens(seq)) < 49:
        world.step()
    history = world.owner[seq].branches[seq]
    live, computed, copied = world.scheduler.stats()["live_blocks"], world.computed, world.copied_slots
    fork = world.add(history[:position], max_new=20, source=seq)
    world.step()
    # One token is computed anew for its logits, and the parent goes on.
    assert world.computed - computed == 2
    assert world.cached_tokens[fork] == position - 1
    assert world.copied_slots - copied == position % 16
    assert world.scheduler.stats()["live_blocks"] - live <= (position % 16 > 0) + 1
    world.run()


def test_without_its_source_a_fork_computes_what_is_not_cached():
    world = World(prefix_caching=False)
    parent = world.add(PROMPT, max_new=20)
    (seq,) = world.owner
    world.step()
    world.step()
    world.add(PROMPT, source=seq)
    world.cancel(parent)
    before = world.computed
    world.step()
    assert world.computed - before == len(PROMPT)
    world.run()


def test_another_namespace_is_never_a_source():
    world = World(prefix_caching=False)
    world.add(PROMPT, max_new=20, ns=1)
    (seq,) = world.owner
    world.step()
    world.step()
    fork = world.add(PROMPT, source=seq, ns=2)
    world.step()
    assert world.cached_tokens[fork] == 0
    world.run()
