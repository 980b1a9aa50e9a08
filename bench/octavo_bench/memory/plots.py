"""The study as PNG files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo_bench.memory.report import PUBLISHED, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = (
    ("tokens", "holds tokens", "#2a6f97"),
    ("reserved", "kept for later tokens", "#8ecae6"),
    ("internal", "internal fragmentation", "#f4a261"),
    ("external", "external fragmentation", "#e76f51"),
    ("free", "free", "#e9ecef"),
)
_DPI = 120


def write_plots(study: Study, folder: Path) -> list[Path]:
    """One file per figure in ``folder``, which is made."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in (("usage", _usage), ("sequences", _sequences), ("sharing", _sharing)):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        draw(figure.subplots(), study)
        path = folder / f"memory-{name}.png"
        figure.savefig(path, dpi=_DPI)
        written.append(path)
    return written


def _usage(axes: Axes, study: Study) -> None:
    names = [r.policy.replace(" ", "\n", 1) for r in study.runs]
    below = [0.0] * len(names)
    for key, label, color in _PARTS:
        shares = [100 * r.usage[key] / r.slots for r in study.runs]
        axes.bar(names, shares, bottom=below, label=label, color=color, width=0.6)
        below = [a + b for a, b in zip(below, shares, strict=True)]
    marked = [
        (i, PUBLISHED[name]) for i, name in enumerate(r.policy for r in study.runs) if name in PUBLISHED
    ]
    axes.plot([i for i, _ in marked], [y for _, y in marked], "k_", markersize=30, label="published (tokens)")
    axes.set(ylabel="% of the cache", ylim=(0, 100), title="What the cache holds while requests wait")
    _legend_beside(axes)


def _sequences(axes: Axes, study: Study) -> None:
    for run in study.runs:
        axes.step(
            [t for t, _, _ in run.timeline], [n for _, n, _ in run.timeline], label=run.policy, where="post"
        )
    axes.set(xlabel="simulated seconds", ylabel="sequences at once", title="The same trace, the same bytes")
    axes.set_ylim(bottom=0)
    _legend_beside(axes)


def _sharing(axes: Axes, study: Study) -> None:
    places = range(len(study.shared))
    axes.barh(places, [100.0] * len(places), color="#e9ecef", label="every sequence with its own blocks")
    axes.barh(
        places, [100 * (1 - s.saved) for s in study.shared], color="#2a6f97", label="with shared blocks"
    )
    axes.set_yticks(places, [s.name.replace(", ", ",\n") for s in study.shared])
    axes.invert_yaxis()
    axes.set(xlabel="% of the blocks", title="Blocks that sharing leaves")
    _legend_beside(axes)


def _legend_beside(axes: Any) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
