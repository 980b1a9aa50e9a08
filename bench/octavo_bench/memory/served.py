"""The policies in front of a real engine: what each lets in is really served."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from octavo_bench.memory.jobs import Job
from octavo_bench.memory.policies import Limits, Paged, Policy

if TYPE_CHECKING:
    from octavo.loading import LoadedModel

_FIRST_ID = 300  # ids below are special tokens or bytes in the vocabularies at hand


@dataclass(frozen=True, slots=True)
class Served:
    """One policy, served.

    Attributes:
        cpu_seconds: of all threads; says more than ``seconds`` where others use the machine too.
        sequences: mean number that ran, by time.
    """

    policy: str
    model: str
    slots: int
    requests: int
    output_tokens: int
    seconds: float
    cpu_seconds: float
    sequences: float
    peak: int
    preemptions: int

    @property
    def throughput(self) -> float:
        return self.output_tokens / self.seconds


def serve(model: str, jobs: Sequence[Job], limits: Limits, policies: Sequence[Policy]) -> list[Served]:
    """Serves ``jobs`` once per policy, each with an engine of its own and the same slots."""
    from octavo.engine_args import EngineArgs
    from octavo.loading import load

    out = []
    for policy in policies:
        paged = isinstance(policy, Paged)
        # Contiguous ranges are accounted for outside: the engine's own blocks must not be what limits them.
        blocks = limits.blocks + (0 if paged else limits.max_num_seqs)
        loaded = load(
            EngineArgs.from_kwargs(
                {
                    "model": model,
                    "max_model_len": limits.max_model_len,
                    "block_size": limits.block_size,
                    "num_gpu_blocks_override": blocks,
                    "max_num_seqs": limits.max_num_seqs,
                    "max_num_batched_tokens": limits.max_num_batched_tokens,
                    "enable_prefix_caching": policy.sharing,
                }
            )
        )
        try:
            out.append(_serve(loaded, model, jobs, limits, policy))
        finally:
            loaded.shutdown()
    return out


def _serve(loaded: LoadedModel, model: str, jobs: Sequence[Job], limits: Limits, policy: Policy) -> Served:
    from octavo import SamplingParams

    engine, vocab = loaded.engine, loaded.vocab_size
    channel = engine.open_channel()
    due = deque(enumerate(jobs, 1))
    active: dict[int, int] = {}  # the engine's id -> ours
    tokens = peak = 0
    area = 0.0
    begin, cpu = time.perf_counter(), time.process_time()
    last = begin
    while due or active:
        while due and policy.admit(*due[0], len(active)):
            request, job = due.popleft()
            params = SamplingParams(temperature=0.0, max_tokens=job.output, ignore_eos=True)
            prompt = [_FIRST_ID + token % (vocab - _FIRST_ID) for token in job.prompt]
            active[loaded.submit(prompt, params, channel, namespace=0, priority=0)] = request
        channel.wait(100)
        now = time.perf_counter()
        running = engine.stats()["running"]
        area += running * (now - last)
        last, peak = now, max(peak, running)
        for delta in channel.drain():
            tokens += len(delta.token_ids)
            if delta.finish is not None:
                if delta.finish == "error":
                    raise RuntimeError(f"a request failed: {delta.error}")
                policy.release(active.pop(delta.id))
    seconds = time.perf_counter() - begin
    return Served(
        policy.name,
        model,
        limits.slots,
        len(jobs),
        tokens,
        seconds,
        time.process_time() - cpu,
        area / seconds,
        peak,
        engine.stats()["preemptions"],
    )


def shortened(jobs: Sequence[Job], limits: Limits, scale: int) -> tuple[list[Job], Limits]:
    """The same trace and limits with all lengths divided by ``scale``; every request arrives at once."""
    short = [
        Job(0.0, job.prompt[: max(1, len(job.prompt) // scale)], max(1, job.output // scale)) for job in jobs
    ]
    slots = limits.slots // scale // limits.block_size * limits.block_size
    return short, replace(limits, slots=slots, max_model_len=limits.max_model_len // scale)
