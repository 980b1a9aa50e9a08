"""Leading blocks inside a declared prompt are shared by all namespaces, and nothing else passes between them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kv_world import World

BLOCK = 4
DECLARED = [list(range(100, 123)), [*range(100, 110), *range(200, 208)]]
OTHERS = 10_000  # added to a token, it is nobody else's
VOCAB = 2**31 - 1  # drawn tokens meet nobody's


def cached(world: World, prompt: list[int], ns: int, **fields: Any) -> int:
    request = world.add(prompt, ns=ns, tenant=ns, max_new=2, **fields)
    world.run()
    return world.cached_tokens[request]


def new_world(**config: Any) -> World:
    return World(
        **{
            "groups": ((200, 0),),
            "block_size": BLOCK,
            "vocab": VOCAB,
            "declared": DECLARED,
            "max_tokens_per_step": 16,
            **config,
        }
    )


def test_declared_blocks_are_found_by_everybody_and_the_rest_by_its_own() -> None:
    world = new_world()
    prompt = [*DECLARED[0], 1, 2, 3, 4, 5, 6]
    assert cached(world, prompt, ns=1) == 0
    assert cached(world, prompt, ns=1) == len(prompt) - 1
    # 23 declared tokens have five full blocks; what is in the sixth is a tenant's own, declared or not.
    assert cached(world, prompt, ns=2) == 20
    assert cached(world, DECLARED[0], ns=3) == 20
    # The declared prompts have ten tokens in common: two full blocks, and two tokens of the third, which are copied.
    assert cached(world, [*DECLARED[1], 9], ns=4) == 10
    assert cached(world, [*DECLARED[1], 9], ns=5) == 16
    assert cached(world, [7, *prompt], ns=6) == 0


def test_blocks_of_declared_prompts_are_held_once_for_all_tenants() -> None:
    world = new_world(max_tokens_per_step=512)
    for ns in range(1, 5):  # at once, so that each computes them
        prompt = [*DECLARED[0][:20], ns]
        world.add(prompt, ns=ns, tenant=ns, max_new=3)
    world.step()
    assert world.scheduler.stats()["live_blocks"] == 5 + 4
    world.run()


Sent = tuple[int, int, int, list[int], int, bool]
SENT = st.tuples(
    st.integers(0, 2),  # steps before it comes
    st.integers(1, 3),  # tenant
    st.integers(0, 23),  # tokens of a declared prompt
    st.lists(st.integers(0, 1), max_size=24),
    st.sampled_from([1, 1, 2]),
    st.booleans(),
)


def trace(sent: list[Sent], private: int, config: dict[str, Any]) -> list[Any]:
    """All that anybody could notice: which rows of which sizes each step had, and what was cached of each prompt.

    Tenants from `private` on say what nobody else says.
    """
    world, seen = new_world(**config), []

    def step() -> None:
        plan = world.plan()
        if plan is not None:
            seen.append([(row["seq"], row["first_pos"], row["n_tokens"]) for row in plan["rows"]])
            world.commit()
            world.scheduler.audit()

    for pause, tenant, declared, own, n, scored in sent:
        for _ in range(pause):
            step()
        tokens = [token + OTHERS * tenant * (tenant >= private) for token in own]
        prompt = [*DECLARED[declared % 2][:declared], *tokens] or [50]
        world.add(prompt, ns=tenant, tenant=tenant, max_new=3, n=n, prompt_logits=scored)
    while world.requests:
        step()
    return [seen, world.cached_tokens]


@settings(max_examples=60, deadline=None)
@given(
    sent=st.lists(SENT, min_size=2, max_size=10),
    depth=st.sampled_from([1, 2]),
    groups=st.sampled_from([((200, 0),), ((200, 0), (200, 8)), ((30, 0),)]),
)
def test_what_a_tenant_sends_changes_nothing_that_another_sees(
    sent: list[Sent], depth: int, groups: tuple[tuple[int, int], ...]
) -> None:
    """Steps and cached tokens are the same whether tenants say the same private things or different ones."""
    config = {"groups": groups, "depth": depth, "max_seqs": 6}
    assert trace(sent, 4, config) == trace(sent, 2, config) == trace(sent, 1, config)
