"""How much memory the cache may take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from octavo.errors import InvalidArgumentError

DEFAULT_SEQUENCES = 32  # full-length sequences that the default cache has room for ...
DEFAULT_SHARE = 0.4  # ... unless that is more than this share of the memory
GPU_SHARE = 0.9  # of what is free on a GPU beside weights and steps
UNBOUNDED = 2**62  # bytes: a GPU says itself what it does not have
MIN_BLOCKS = 2
MAX_BLOCKS = 2**31 - 1  # the engine numbers them with 32 bits


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """What this process may use: the memory that is free or reclaimable, within the limit of its control group."""
    return min(
        [_meminfo(proc / "meminfo", "MemAvailable"), *_cgroup_limits(proc / "self" / "cgroup", cgroup)]
    )


def installed_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """What this process could have at most: the machine's memory, within the limit of its control group."""
    return min([_meminfo(proc / "meminfo", "MemTotal"), *_cgroup_limits(proc / "self" / "cgroup", cgroup)])


def _meminfo(meminfo: Path, field: str) -> int:
    for line in meminfo.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    raise OSError(f"{meminfo} has no {field}")


def _cgroup_limits(own: Path, root: Path) -> Iterator[int]:
    """The limits of the process's group and of every group around it; of version 2 and version 1."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, file = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, file = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        for folder in [group, *group.parents]:
            try:
                text = (folder / file).read_text().strip()
            except OSError:
                text = "max"
            if text.isdigit():
                yield int(text)
            if folder == base:
                break


def num_blocks(
    *,
    groups: Sequence[tuple[int, int]],
    block_size: int,
    max_model_len: int,
    weight_bytes: int,
    utilization: float | None = None,
    cache_bytes: int | None = None,
    blocks: int | None = None,
    available: int | None = None,
    installed: int | None = None,
) -> int:
    """Blocks of the cache: ``blocks`` if given, else as many as ``cache_bytes`` holds, else a share of the memory.

    Args:
        groups: for layers that keep positions equally long, the bytes of ``block_size`` tokens and how many blocks
            they get at most (0: no bound); the first has none.
        weight_bytes: what the model's weights take; part of the share.
        utilization: share of the memory for weights and cache. Without it the cache has room for 32 sequences of
            ``max_model_len``, at most 40 % of the memory.
        available, installed: the memory that is free and the memory there is; asked of the system when not given.

    Raises:
        InvalidArgumentError: not even two blocks fit, or the machine has less memory; with the numbers.
    """
    if blocks is not None:
        _check_fits("num_gpu_blocks_override", blocks, _bytes_of(blocks, groups), installed)
        return blocks
    if cache_bytes is not None:
        _check_fits("kv_cache_memory", cache_bytes, cache_bytes, installed)
        return _whole_blocks("kv_cache_memory", cache_bytes, groups, f"{cache_bytes} bytes")
    available = available_bytes() if available is None else available
    if utilization is not None:
        budget = int(available * utilization) - weight_bytes
        what = f"{utilization} of {available} available bytes less {weight_bytes} bytes of weights"
        return _whole_blocks("gpu_memory_utilization", budget, groups, what)
    wanted = DEFAULT_SEQUENCES * -(-max_model_len // block_size)
    fitting = _whole_blocks(
        "gpu_memory_utilization",
        int(available * DEFAULT_SHARE),
        groups,
        f"40% of {available} available bytes",
    )
    return min(wanted, fitting)


def _check_fits(param: str, value: int, size: int, installed: int | None) -> None:
    limit = installed_bytes() if installed is None else installed
    if size > limit:
        raise InvalidArgumentError(
            f"{param} {value} asks for a cache of {size} bytes ({size / 2**30:.1f} GiB), but this process can have at "
            f"most {limit} bytes of memory ({limit / 2**30:.1f} GiB)",
            param=param,
        )


def _bytes_of(blocks: int, groups: Sequence[tuple[int, int]]) -> int:
    return sum(size * (min(blocks, most) if most else blocks) for size, most in groups)


def _whole_blocks(param: str, budget: int, groups: Sequence[tuple[int, int]], what: str) -> int:
    # Up to the smallest bound every block costs all groups' bytes, beyond it only those of the others, and so on.
    count = 0
    for bound in sorted(most for _, most in groups if most):
        step = _bytes_of(count + 1, groups) - _bytes_of(count, groups)
        count = max(count, min(bound, count + (budget - _bytes_of(count, groups)) // step))
    step = _bytes_of(count + 1, groups) - _bytes_of(count, groups)
    count += max(0, budget - _bytes_of(count, groups)) // step
    if count < MIN_BLOCKS:
        bytes_per_block = _bytes_of(1, groups)
        raise InvalidArgumentError(
            f"{param} leaves no room for the cache: {what} must hold at least {MIN_BLOCKS} blocks of "
            f"{bytes_per_block} bytes",
            param=param,
        )
    if count > MAX_BLOCKS:
        raise InvalidArgumentError(
            f"{param} is too much: {what} would hold {count} blocks of {_bytes_of(1, groups)} bytes, at most "
            f"{MAX_BLOCKS} are possible",
            param=param,
        )
    return count
