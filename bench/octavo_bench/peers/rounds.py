"""The measurement itself: every peer runs every workload in turn, several rounds, each row a figure per round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo_bench.client import Load, Record, summarize
from octavo_bench.peers.base import Peer, Started
from octavo_bench.workloads import Shape, batch, one_stream, prompts_alone, shared_prompt


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: a workload and the figure taken from it (more is better)."""

    key: str
    title: str
    figure: Callable[[Sequence[Record]], float]


def _decode_rate(records: Sequence[Record]) -> float:
    tpot = records[0].tpot
    return 1 / tpot if tpot else float("nan")


ROWS = (
    Row("w1", "W1 one stream: decode tok/s", _decode_rate),
    Row("w2", "W2 batch: output tok/s", lambda r: summarize(r).output_rate),
    Row("w3_cold", "W3 shared prompt, cold: output tok/s", lambda r: summarize(r).output_rate),
    Row("w3_warm", "W3 the same, warm: output tok/s", lambda r: summarize(r).output_rate),
    Row("w4", "W4 long prompts: prompt tok/s", lambda r: summarize(r).prompt_rate),
)


@dataclass(slots=True)
class Figures:
    """All rounds of one peer."""

    peer: str
    kind: str
    started: list[Started] = field(default_factory=list)
    rows: dict[str, list[float]] = field(default_factory=lambda: {row.key: [] for row in ROWS})
    ttft: list[float] = field(default_factory=list)
    resident_mb: list[float] = field(default_factory=list)
    failure: str | None = None

    def median(self, key: str) -> float:
        values = self.rows[key]
        return statistics.median(values) if values else float("nan")


def loads(shape: Shape, vocab: int, seed: int) -> list[tuple[str, Load]]:
    """The loads of one round, in order: the warm run of W3 follows its cold one."""
    return [
        ("w1", one_stream(shape, vocab, seed)),
        ("w2", batch(shape, vocab, seed)),
        ("w3_cold", shared_prompt(shape, vocab, seed, 1)),
        ("w3_warm", shared_prompt(shape, vocab, seed, 2)),
        ("w4", prompts_alone(shape, vocab, seed)),
    ]


async def measure(
    peers: Sequence[Peer],
    *,
    rounds: int,
    shape: Shape,
    vocab: int,
    only: Sequence[str],
    say: Callable[[str], None],
) -> list[Figures]:
    """Runs ``rounds`` rounds. In each, the peers start, run and stop one after the other, so that a machine that
    drifts drifts for all of them. A peer that fails is marked and left out of later rounds."""
    table = [Figures(peer.name, peer.kind) for peer in peers]
    rows = {row.key: row for row in ROWS}
    for round_number in range(rounds):
        for peer, figures in zip(peers, table, strict=True):
            if figures.failure:
                continue
            try:
                figures.started.append(await peer.start())
                for key, load in loads(shape, vocab, round_number):
                    if only and key not in only:
                        continue
                    records = await peer.run(load)
                    bad = [r.error for r in records if not r.ok]
                    if bad:
                        raise RuntimeError(f"{len(bad)} of {len(records)} requests failed: {bad[0]}")
                    value = rows[key].figure(records)
                    figures.rows[key].append(value)
                    if key == "w1" and records[0].ttft is not None:
                        figures.ttft.append(records[0].ttft)
                    say(
                        f"round {round_number + 1}/{rounds}  {peer.name:28}  {rows[key].title:40} {value:9.1f}"
                    )
                figures.resident_mb.append(peer.resident_mb())
            except (RuntimeError, OSError, TimeoutError, ValueError) as e:
                figures.failure = str(e)
                say(f"{peer.name}: {e}")
            finally:
                await peer.stop()
    return table
