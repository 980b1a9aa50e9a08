"""A plain model of what a step does to the KV cache, to hold the scheduler's plans against.

Every slot of every block holds the identity of the prefix whose K and V would lie there: a number that stands for the
tokens up to and including that position, each with its namespace unless it is declared common to all. Copies and
writes are applied as a plan says, and every position that a row reads must hold exactly the prefix of the row's own
sequence.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo._engine import Scheduler

PARTITION = 128


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def draw(ns: int, tokens: list[int]) -> int:
    """The model of the model: the next token depends on the whole prefix and on nothing else."""
    return zlib.crc32(array("q", [ns, *tokens]).tobytes())


@dataclass
class Request:
    id: int
    ns: int
    prompt: list[int]
    max_new: int
    n: int = 1
    beam: bool = False
    prompt_logits: bool = False
    stop_at: int | None = None  # every branch ends after so many new tokens, as if it drew an end token
    branches: dict[int, list[int]] = field(default_factory=dict)  # live ones: all tokens
    done: dict[int, list[int]] = field(default_factory=dict)
    scored: set[int] = field(default_factory=set)  # prompt positions with logits
    sampled_once: bool = False
    failed: tuple | None = None


class World:
    """A scheduler, the cache that its plans act on, and the requests as their owner sees them."""

    def __init__(
        self, *, groups=((64, 0),), block_size=16, max_model_len=4096, vocab=1000, declared=(), **config
    ):
        self.scheduler = Scheduler(
            groups=list(groups), block_size=block_size, max_model_len=max_model_len, **config
        )
        self.block_size, self.windows = block_size, [w for _, w in groups]
        self.max_model_len, self.vocab = max_model_len, vocab
        self.declared = declared  # prompts that all namespaces share
        self.budget = config.get("max_tokens_per_step", 512)
        self.max_seqs = config.get("max_seqs", 256)
        self.kv = [[[None] * block_size for _ in range(blocks)] for blocks, _ in groups]
        self.chains: dict[tuple, int] = {}
        self.requests: dict[int, Request] = {}
        self.finished: dict[int, Request] = {}
        self.owner: dict[int, Request] = {}  # by live sequence
        self.histories: dict[
            int, tuple[int, list[int]]
        ] = {}  # namespace and tokens of every sequence there was
        self.in_flight: list[dict] = []
        self.executed = 0  # of in_flight
        self.drawn: dict[int, list[int]] = {}  # tokens by step and sample
        self.next_id = self.next_seq = 1
        self.computed = 0  # tokens in committed rows
        self.copied_slots = 0
        self.cached_tokens: dict[int, int] = {}
        # The tokens that follow a drawn one without being sampled.
        self.forced_by: Callable[[int], Sequence[int]] = lambda token: ()

    # requests

    def add(
        self,
        prompt,
        *,
        ns=0,
        max_new=4,
        n=1,
        priority=0,
        prompt_logits=False,
        beam=False,
        stop_at=None,
        source=0,
        tenant=0,
    ) -> int:
        request = Request(self.next_id, ns, list(prompt), max_new, n, beam, prompt_logits, stop_at)
        seqs = list(range(self.next_seq, self.next_seq + n))
        self.scheduler.add(
            request.id,
            seqs,
            request.prompt,
            namespace=ns,
            priority=priority,
            max_new_tokens=max_new,
            prompt_logits=prompt_logits,
            source=source,
            tenant=tenant,
            shared_tokens=self.declared_tokens(request.prompt),
        )
        self.next_id += 1
        self.next_seq += n
        request.branches[seqs[0]] = list(request.prompt)
        self.requests[request.id] = request
        self.owner[seqs[0]] = request
        self.histories[seqs[0]] = ns, request.prompt
        return request.id

    def cancel(self, request_id: int) -> None:
        self.scheduler.cancel(request_id)
        self._drop(self.requests.pop(request_id))

    def _drop(self, request: Request) -> None:
        for seq in request.branches:
            del self.owner[seq]
        request.branches = {}

    # steps

    def declared_tokens(self, tokens) -> int:
        return max((common_length(tokens, prompt) for prompt in self.declared), default=0)

    def chain(self, ns: int, tokens) -> list[int]:
        shared = self.declared_tokens(tokens)
        out, at = [], -1
        for i, token in enumerate(tokens):
            space = "shared" if i < shared else ns
            at = self.chains.setdefault((at, space, token), len(self.chains))
            out.append(at)
        return out

    def plan(self) -> dict | None:
        plan = self.scheduler.plan()
        self._take_messages()
        if plan is None:
            return None
        assert plan["rows"], "a step without work"
        assert sum(r["n_tokens"] for r in plan["rows"]) <= self.budget
        assert len({r["seq"] for r in plan["rows"]}) == len(plan["rows"])
        self._check_samples(plan)
        self._check_prefix_groups(plan)
        self.in_flight.append(plan)
        return plan

    def _take_messages(self) -> None:
        for request_id, cached in self.scheduler.take_admissions():
            assert request_id not in self.cached_tokens, "admitted twice"
            self.cached_tokens[request_id] = cached
        for request_id, why in self.scheduler.take_failures():
            request = self.requests.pop(request_id)
            self._drop(request)
            request.failed = why
            self.finished[request_id] = request

    def _check_samples(self, plan: dict) -> None:
        offsets, at = [], 0
        for row in plan["rows"]:
            offsets.append(at)
            at += row["n_tokens"]
        for row_index, token, state, position in plan["samples"]:
            row = plan["rows"][row_index]
            assert token == offsets[row_index] + row["n_tokens"] - 1
            assert position == row["first_pos"] + row["n_tokens"]
            assert row["logits"] in ("last", "range")
            request = self.owner[row["seq"]]
            assert state == row["seq"] or (not request.sampled_once and state > row["seq"])

    def _check_prefix_groups(self, plan: dict) -> None:
        seen: set[int] = set()
        for rows, partitions in plan["prefix_groups"]:
            assert len(rows) >= 2 and partitions >= 1 and not seen & set(rows)
            seen |= set(rows)
            blocks = partitions * PARTITION // self.block_size
            for group in range(len(self.kv)):
                assert len({tuple(plan["rows"][r]["tables"][group][:blocks]) for r in rows}) == 1
            assert all(plan["rows"][r]["first_pos"] >= partitions * PARTITION for r in rows)

    def execute(self) -> None:
        """Runs the oldest step that was not run yet: copies, then all writes, then all reads."""
        plan = self.in_flight[self.executed]
        size = self.block_size
        for group, src, dst, slots in plan["copies"]:
            assert 0 < slots < size and src != dst
            self.kv[group][dst][:slots] = self.kv[group][src][:slots]
            self.copied_slots += slots
        reads = []
        for row in plan["rows"]:
            first, n = row["first_pos"], row["n_tokens"]
            tokens = (
                [self.drawn[row["from_step"]][row["from_row"]]] if row["from_row"] >= 0 else row["tokens"]
            )
            ns, history = self.histories[row["seq"]]  # a step runs whole, whoever was cancelled meanwhile
            if first + n <= len(history):
                assert history[first : first + n] == tokens, "the plan computes other tokens"
            identity = self.chain(ns, history[:first] + tokens)
            reads.append((identity, draw(ns, history[:first] + tokens)))
            for group in range(len(self.kv)):
                table = row["tables"][group]
                assert len(table) == -(-(first + n) // size)
                for p, slot in zip(range(first, first + n), row["slots"][group], strict=True):
                    if slot >= 0:
                        assert slot == table[p // size] * size + p % size
                        self.kv[group][slot // size][slot % size] = identity[p]
        draws = {}
        for row, (identity, drawn) in zip(plan["rows"], reads, strict=True):
            for group, window in enumerate(self.windows):
                oldest = max(0, row["first_pos"] - window + 1) if window else 0
                table = row["tables"][group]
                for p in range(oldest, row["first_pos"] + row["n_tokens"]):
                    held = self.kv[group][table[p // size]][p % size]
                    assert held == identity[p], (row, group, p)
            draws[row["seq"]] = drawn
        self.drawn[plan["step"]] = [
            (draws[plan["rows"][r]["seq"]] + (state - plan["rows"][r]["seq"])) % self.vocab
            for r, _, state, _ in plan["samples"]
        ]
        self.executed += 1

    def commit(self, *, faults=(), choose=None) -> None:
        """Commits the oldest step. `choose(k)` picks parents of beams: k indices below k."""
        if self.executed == 0:
            self.execute()
        plan = self.in_flight[0]
        outcomes = []
        sampled: dict[int, list[tuple[int, int]]] = {}
        for (row, _, state, _), token in zip(plan["samples"], self.drawn[plan["step"]], strict=True):
            sampled.setdefault(plan["rows"][row]["seq"], []).append((state, token))
        failed = {id(self.owner[s]) for s in faults if s in self.owner}
        for request in {id(self.owner[s]): self.owner[s] for s in faults if s in self.owner}.values():
            self._drop(self.requests.pop(request.id))
        groups: dict[int, list[int]] = {}
        for row in plan["rows"]:
            seq = row["seq"]
            request = self.owner.get(seq)
            self.computed += row["n_tokens"]
            if request is None or id(request) in failed:
                continue
            if row["logits"] == "range":
                first = row["first_pos"] + row["logits_first"]
                request.scored |= set(range(first, row["first_pos"] + row["n_tokens"]))
            if seq in sampled:
                groups.setdefault(request.id, []).append(seq)
        for request_id, seqs in groups.items():
            outcomes += self._outcomes(self.requests[request_id], seqs, sampled, choose)
        self.scheduler.commit(plan["step"], outcomes, list(faults))
        self.in_flight.pop(0)
        self.executed -= 1
        self._take_messages()

    def _outcomes(self, request: Request, seqs: list[int], sampled: dict, choose) -> list[tuple]:
        if request.prompt_logits:
            assert request.scored >= set(range(len(request.prompt)))
        if not request.sampled_once:
            request.sampled_once = True
            parent = seqs[0]
            children = [(parent, state, token) for state, token in sampled[parent]]
        elif request.beam:
            # A fork of a lone branch may find that branch's next row in flight already.
            assert set(seqs) == set(request.branches) or request.n == 1, "branches are sampled together"
            children, named = [], set()
            for index in (choose or (lambda k: range(k)))(len(seqs)):
                parent = seqs[index]
                child = parent
                if parent in named:
                    child, self.next_seq = self.next_seq, self.next_seq + 1
                named.add(parent)
                token = (sampled[parent][0][1] + len(children)) % self.vocab
                children.append((parent, child, token))
        else:
            assert set(seqs) == set(request.branches) or request.n == 1
            children = [(seq, seq, sampled[seq][0][1]) for seq in seqs]
        before = {seq: list(request.branches[seq]) for seq in seqs}
        for seq in seqs:
            del request.branches[seq]
            del self.owner[seq]
        outcomes = []
        for parent, child, token in children:
            tokens = before[parent]
            taken: list[int] = []
            ends = False
            for more in (token, *self.forced_by(token)):
                tokens, taken = [*tokens, more], [*taken, more]
                new = len(tokens) - len(request.prompt)
                ends = new >= request.max_new or len(tokens) >= self.max_model_len or new == request.stop_at
                if ends:
                    break
            outcomes.append((parent, child, taken if len(taken) > 1 else token, ends))
            if ends:
                request.done[child] = tokens
            else:
                request.branches[child] = tokens
                self.owner[child] = request
            self.histories[child] = request.ns, tokens
        if not request.branches:
            self.finished[request.id] = self.requests.pop(request.id)
        return outcomes

    def rollback(self, index: int) -> None:
        self.scheduler.rollback(self.in_flight[index]["step"])
        del self.in_flight[index:]
        self.executed = min(self.executed, index)

    # whole runs

    def plan_up_to(self, depth: int) -> bool:
        """Plans as many steps as fit in flight; false when none is."""
        while len(self.in_flight) < depth and self.plan() is not None:
            self.scheduler.audit()
        return bool(self.in_flight)

    def step(self, *, depth=1) -> bool:
        """Plans as many steps as fit in flight, then commits one. False when there was nothing to do."""
        if not self.plan_up_to(depth):
            return False
        self.commit()
        self.scheduler.audit()
        return True

    def run(self, *, depth=1, limit=10_000) -> None:
        for _ in range(limit):
            if not self.step(depth=depth):
                break
        assert not self.scheduler.has_work() and not self.requests, "work is left that nobody plans"
        stats = self.scheduler.stats()
        assert stats["live_blocks"] == 0
        assert stats["free_blocks"] + stats["cached_blocks"] == stats["total_blocks"]
