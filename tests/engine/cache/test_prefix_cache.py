"""Block pool, block tables, prefix index and namespaces, one promise at a time."""

import itertools
import random

import pytest
from octavo._engine import BlockTable, Namespaces, PagedCache

ROOT = -1


def fill(cache, tokens, *, ns=0, tables=None):
    """Indexes a sequence as the scheduler does: full blocks, then the tail. Returns its tables."""
    tables = tables or [BlockTable(cache)]
    size, node = 4, ROOT
    for i in range(0, len(tokens), size):
        blocks = [t.append() for t in tables]
        part = tokens[i : i + size]
        if len(part) == size:
            node = cache.insert(node, ns, part, blocks)
        else:
            cache.insert_tail(node, ns, part, blocks)
    return tables


def found(cache, tokens, *, ns=0):
    path, _, tail_tokens = cache.find(ns, tokens)
    return len(path) * 4 + tail_tokens


def test_low_blocks_first_and_free_live_cached_make_the_pool():
    cache = PagedCache([(8, 0)], 4)
    table = BlockTable(cache)
    assert [table.append() for _ in range(8)] == list(range(8))
    with pytest.raises(Exception, match="8 blocks are live"):
        table.append()
    cache.audit([table])
    table.clear()
    assert (cache.free_blocks(), cache.live_blocks(), cache.cached_blocks()) == (8, 0, [])


def test_an_audit_misses_no_handle():
    cache = PagedCache([(8, 0)], 4)
    table = BlockTable(cache)
    table.append()
    with pytest.raises(Exception, match="counts 1 shares"):
        cache.audit([])


def test_fork_shares_and_a_write_copies_once():
    cache = PagedCache([(8, 0)], 4)
    table = BlockTable(cache)
    table.append(), table.append()
    fork = table.fork()
    assert fork.ids() == table.ids() == [0, 1] and cache.refs(1) == 2
    assert fork.make_writable(1, 3) == (1, 2, 3)
    assert fork.ids() == [0, 2] and table.ids() == [0, 1]
    assert table.make_writable(1, 3) is None  # alone now: in place
    cache.audit([table, fork])


def test_a_block_that_is_free_cannot_be_shared():
    cache = PagedCache([(8, 0)], 4)
    with pytest.raises(Exception, match="free"):
        BlockTable(cache).share(5)
    cache.audit([])


@pytest.mark.parametrize("colliding", [False, True])
def test_keys_find_and_tokens_decide(colliding):
    """With every key equal, distinct prompts still share nothing and equal ones everything."""
    cache = PagedCache([(600, 0)], 4, colliding_keys=colliding)
    rng = random.Random(0)
    prompts = [rng.choices(range(3), k=rng.randrange(1, 20)) for _ in range(60)]
    seen, tables = [], []
    for ns, prompt in itertools.product((0, 1), prompts):
        expected = max((common(prompt, p) for n, p in seen if n == ns), default=0)
        got = found(cache, prompt, ns=ns)
        assert expected // 4 * 4 <= got <= expected
        if expected == len(prompt) and len(prompt) % 4 == 0:
            assert got == expected
        tables += fill(cache, prompt, ns=ns)
        seen.append((ns, prompt))
        cache.audit(tables)


def common(a, b):
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return n


def test_below_the_block_the_common_tokens_are_found():
    cache = PagedCache([(50, 0)], 4)
    fill(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    assert cache.find(0, [1, 2, 3, 4, 5, 6, 9, 9])[2] == 2
    assert cache.find(0, [1, 2, 9])[2] == 2
    assert cache.find(0, [1, 2, 3, 4, 6])[2] == 0
    assert cache.find(1, [1, 2, 3])[2] == 0


def test_a_tail_that_grows_is_found_as_far_as_it_was_committed_and_becomes_the_full_node():
    cache = PagedCache([(50, 0)], 4)
    table = BlockTable(cache)
    block = table.append()
    for n in range(1, 4):
        cache.insert_tail(ROOT, 0, [1, 2, 3, 4][:n], [block])
        assert found(cache, [1, 2, 3, 4]) == n
        cache.audit([table])
    node = cache.insert(ROOT, 0, [1, 2, 3, 4], [block])
    assert cache.nodes() == 1 and cache.block(node) == block
    assert cache.find(0, [1, 2, 3, 4]) == ([node], -1, 0)


def test_a_longer_candidate_replaces_a_tail_and_a_shorter_one_does_not():
    cache = PagedCache([(50, 0)], 4)
    a, b, c = (BlockTable(cache) for _ in range(3))
    cache.insert_tail(ROOT, 0, [1, 2], [a.append()])
    cache.insert_tail(ROOT, 0, [1, 3], [b.append()])
    assert found(cache, [1, 2]) == 2 and found(cache, [1, 3]) == 1
    cache.insert_tail(ROOT, 0, [1, 3, 4], [c.append()])
    assert found(cache, [1, 3, 4]) == 3
    cache.audit([a, b, c])
    a.clear(), b.clear()
    assert cache.cached_blocks() == []  # not indexed: free at once
    c.clear()
    assert len(cache.cached_blocks()) == 1


def test_equal_content_has_one_node():
    cache = PagedCache([(50, 0)], 4)
    a, b = BlockTable(cache), BlockTable(cache)
    first, second = a.append(), b.append()
    node = cache.insert(ROOT, 0, [1, 2, 3, 4], [first])
    assert cache.insert(ROOT, 0, [1, 2, 3, 4], [second]) == node
    assert cache.block(node) == first


def test_least_recently_used_leaves_go_first():
    cache = PagedCache([(12, 0)], 4)
    (old,) = fill(cache, [1] * 12)
    (new,) = fill(cache, [2] * 12)
    old_ids, new_ids = old.ids(), new.ids()
    old.clear(), new.clear()
    assert cache.cached_blocks() == old_ids[::-1] + new_ids[::-1]
    again = BlockTable(cache)
    for block in old_ids:  # a hit makes them the newest
        again.share(block)
    again.clear()
    assert cache.cached_blocks() == new_ids[::-1] + old_ids[::-1]
    for left in (8, 4, 0):
        assert cache.evict()
        assert (found(cache, [2] * 12), found(cache, [1] * 12)) == (left, 12)
        cache.audit([])
    for left in (8, 4, 0):
        assert cache.evict()
        assert found(cache, [1] * 12) == left
    assert not cache.evict() and cache.nodes() == 0


def test_parents_outlive_children_whatever_order_they_were_released_in():
    cache = PagedCache([(12, 0)], 4)
    tables, node = [], ROOT
    for i in range(4):  # every block in a table of its own, released parent first
        table = BlockTable(cache)
        node = cache.insert(node, 0, [i] * 4, [table.append()])
        tables.append(table)
    for table in tables:
        table.clear()
    prompt = [t for i in range(4) for t in [i] * 4]
    for left in (3, 2, 1, 0):
        assert cache.evict()
        assert found(cache, prompt) == left * 4
        cache.audit([])
    assert not cache.evict()


def test_what_is_held_is_never_evicted():
    cache = PagedCache([(6, 0)], 4)
    (table,) = fill(cache, list(range(12)))
    fill(cache, [7] * 12)[0].clear()
    other = BlockTable(cache)
    for _ in range(3):
        other.append()
    with pytest.raises(Exception, match="live"):
        other.append()
    assert found(cache, list(range(12))) == 12
    cache.audit([table, other])


def test_a_hit_is_what_every_group_can_serve():
    cache = PagedCache([(20, 0), (20, 6)], 4)
    full, window = BlockTable(cache, 0), BlockTable(cache, 1)
    tokens = list(range(16))
    fill(cache, tokens, tables=[full, window])
    window.drop_front(), window.drop_front()  # 16 tokens, a window of 6: blocks 0 and 1 are not needed
    assert found(cache, tokens) == 16
    for _ in range(2):
        assert cache.evict(1)
    # The window group has blocks 2 and 3 only. 16 and 12 positions need blocks from (16 - 5) // 4 = 2 and 1 on.
    assert found(cache, tokens) == 16
    assert found(cache, tokens[:15]) == 0
    cache.audit([full, window])


def test_a_window_alone_keeps_the_chain_and_lets_it_go_at_the_end():
    cache = PagedCache([(20, 5)], 4)
    (table,) = fill(cache, list(range(20)))
    for _ in range(3):
        table.drop_front()
        assert cache.evict()
        cache.audit([table])
    assert cache.nodes() == 5 and found(cache, list(range(20))) == 20
    table.clear()
    while cache.evict():
        cache.audit([])
    assert cache.nodes() == 0


def test_a_lookup_may_switch_once_from_a_public_namespace():
    cache = PagedCache([(20, 0)], 4)
    public, tenant = BlockTable(cache), BlockTable(cache)
    top = cache.insert(ROOT, 1, [1, 2, 3, 4], [public.append()])
    own = cache.insert(top, 9, [5, 6, 7, 8], [tenant.append()])
    tokens = [1, 2, 3, 4, 5, 6, 7, 8]
    assert cache.find(9, tokens, shared_namespace=1, shared_blocks=1)[0] == [top, own]
    assert cache.find(1, tokens)[0] == [top]
    assert cache.find(9, tokens)[0] == []
    assert cache.find(8, tokens, shared_namespace=1, shared_blocks=1)[0] == [top]


def test_namespaces_are_exact_and_tagged():
    names = Namespaces()
    tags = [
        [],
        [("salt", "x")],
        [("adapter", "x")],
        [("salt", "x"), ("adapter", "x")],
        [("adapter", "x"), ("salt", "x")],
        [("salt", "xx")],
        [("salt", "")],
        [("salt", "a"), ("salt", "b")],
        [("salt", "ab")],
        [("salt", "a\x01\x01")],
        [("media", "x")],
    ]
    ids = [names.intern(t) for t in tags]
    assert len(set(ids)) == len(tags) and ids[0] == 0
    assert [names.intern(t) for t in tags] == ids
    with pytest.raises(Exception, match="kind"):
        names.intern([("tenant", "x")])
