"""The scheduler and its cache against a plain model, under every order of events that hypothesis can think of."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kv_world import World

# Few distinct tokens and short blocks: prompts share, part inside blocks and meet again all the time.
TOKENS = st.integers(0, 1)
STEMS = [[0] * 40, [0, 1] * 20, [1, 1, 0, 0, 1] * 8]
PROMPTS = st.one_of(
    st.lists(TOKENS, min_size=1, max_size=30),
    st.tuples(st.sampled_from(STEMS), st.integers(1, 40), st.lists(TOKENS, max_size=6)).map(
        lambda t: t[0][: t[1]] + t[2]
    ),
)
GROUPS = st.sampled_from(
    [
        [(12, 0)],
        [(20, 0)],
        [(64, 0)],
        [(16, 0), (12, 6)],  # a full group and a window
        [(14, 0), (12, 8)],
        [(12, 5)],  # a window only
    ]
)


class SchedulerMachine(RuleBasedStateMachine):
    steps = 0

    @initialize(
        groups=GROUPS,
        depth=st.sampled_from([1, 2]),
        budget=st.sampled_from([4, 7, 16, 64]),
        max_seqs=st.sampled_from([3, 8]),
        caching=st.sampled_from([True, True, True, False]),
        watermark=st.sampled_from([0.0, 0.1]),
        limit=st.sampled_from([0, 3]),
        ageing=st.sampled_from([1, 1000]),
        declared=st.sampled_from([(), STEMS[:1], STEMS]),
    )
    def build(self, groups, depth, budget, max_seqs, caching, watermark, limit, ageing, declared):
        self.depth = depth
        self.world = World(
            groups=groups, block_size=4, max_model_len=50, vocab=2, max_tokens_per_step=budget, max_seqs=max_seqs,
            prefix_caching=caching, watermark=watermark, depth=depth,
            max_seqs_per_tenant=limit, ageing_steps=ageing, declared=declared,
        )  # fmt: skip

    @rule(
        prompt=PROMPTS, ns=st.integers(0, 1), max_new=st.integers(1, 12), n=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.integers(0, 1), tenant=st.integers(0, 2), scored=st.booleans(), beam=st.booleans(),
        stop_at=st.none() | st.integers(1, 4), copies=st.integers(1, 4),
    )  # fmt: skip
    def add(self, prompt, ns, max_new, n, priority, tenant, scored, beam, stop_at, copies):
        if self.world.scheduler.check(list(range(n)), prompt, max_new) is not None:
            return
        for _ in range(copies):
            self.world.add(
                prompt, ns=ns, max_new=max_new, n=n, priority=priority, prompt_logits=scored,
                beam=beam, stop_at=stop_at, tenant=tenant,
            )  # fmt: skip

    @precondition(lambda self: self.world.owner)
    @rule(data=st.data(), n=st.integers(1, 2), max_new=st.integers(1, 8), scored=st.booleans())
    def fork(self, data, n, max_new, scored):
        seq = data.draw(st.sampled_from(sorted(self.world.owner)))
        request = self.world.owner[seq]
        history = request.branches[seq]
        assert self.world.scheduler.tokens(seq) == history
        prompt = history[: data.draw(st.integers(1, len(history)))]
        if self.world.scheduler.check(list(range(n)), prompt, max_new) is None:
            self.world.add(
                prompt, ns=request.ns, max_new=max_new, n=n, prompt_logits=scored, source=seq,
            )  # fmt: skip

    @precondition(lambda self: self.world.requests)
    @rule(data=st.data())
    def cancel(self, data):
        self.world.cancel(data.draw(st.sampled_from(sorted(self.world.requests))))

    @precondition(lambda self: len(self.world.in_flight) < self.depth)
    @rule(run_now=st.booleans())
    def plan(self, run_now):
        if self.world.plan() is not None and run_now:
            while self.world.executed < len(self.world.in_flight):
                self.world.execute()

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data(), fault=st.sampled_from([False] * 9 + [True]))
    def commit(self, data, fault):
        faults = [data.draw(st.sampled_from(self.world.in_flight[0]["rows"]))["seq"]] if fault else []
        self.world.commit(
            faults=faults,
            choose=lambda k: data.draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=max(k, 2))),
        )

    @rule(count=st.integers(1, 8))
    def run(self, count):
        for _ in range(count):
            if not self.world.step(depth=self.depth):
                break

    @rule(tokens=st.sampled_from([0, 1, 5]), chunk=st.sampled_from([0, 1, 3]))
    def limit(self, tokens, chunk):
        self.world.scheduler.limit_steps(tokens, chunk)

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data())
    def rollback(self, data):
        self.world.rollback(data.draw(st.integers(0, len(self.world.in_flight) - 1)))

    @invariant()
    def audited(self):
        SchedulerMachine.steps += 1
        if hasattr(self, "world"):
            self.world.scheduler.audit()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.run(depth=self.depth)  # whatever happened before, everybody comes to an end


CHECKS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def test_random_events_keep_the_cache_true():
    run_state_machine_as_test(
        SchedulerMachine, settings=settings(max_examples=25, stateful_step_count=25, **CHECKS)
    )


@pytest.mark.slow
def test_ten_thousand_random_events_keep_the_cache_true():
    SchedulerMachine.steps = 0
    run_state_machine_as_test(
        SchedulerMachine, settings=settings(max_examples=400, stateful_step_count=50, **CHECKS)
    )
    assert SchedulerMachine.steps >= 10_000
