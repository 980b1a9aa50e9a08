"""How much memory the cache takes, from what the system says."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo import memory
from octavo.errors import InvalidArgumentError

GIB = 1 << 30


def fake_system(folder: Path, cgroup_line: str, limits: dict[str, str], available_kib: int = 8 << 20) -> int:
    proc, cgroup = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {available_kib} kB\n")
    (proc / "self" / "cgroup").write_text(cgroup_line)
    for name, value in limits.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(value)
    return memory.available_bytes(proc, cgroup)


@pytest.mark.parametrize(
    ("line", "limits", "want"),
    [
        ("0::/a/b\n", {}, 8 * GIB),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": f"{3 * GIB}\n"}, 3 * GIB),
        ("0::/a/b\n", {"a/b/memory.max": f"{2 * GIB}", "a/memory.max": f"{3 * GIB}"}, 2 * GIB),
        ("0::/\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("0::/a\n", {"a/memory.max": f"{64 * GIB}"}, 8 * GIB),
        ("5:cpu:/x\n4:memory:/x\n", {"memory/x/memory.limit_in_bytes": f"{5 * GIB}"}, 5 * GIB),
        ("4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "9223372036854771712"}, 8 * GIB),
    ],
)
def test_the_tightest_limit_counts(tmp_path: Path, line: str, limits: dict[str, str], want: int) -> None:
    assert fake_system(tmp_path, line, limits) == want


@pytest.mark.parametrize(
    ("line", "limits", "want"),
    [("0::/a\n", {"a/memory.max": f"{3 * GIB}"}, 3 * GIB), ("", {}, 99999999 << 10)],
)
def test_what_is_installed(tmp_path: Path, line: str, limits: dict[str, str], want: int) -> None:
    fake_system(tmp_path, line, limits)
    assert memory.installed_bytes(tmp_path / "proc", tmp_path / "cgroup") == want


@pytest.mark.parametrize("asked", [{"cache_bytes": 10_001}, {"blocks": 11}])
def test_more_than_the_machine_has(asked: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"at most 10000 bytes") as caught:
        blocks(**asked, installed=10_000)
    assert str(next(iter(asked.values()))) in str(caught.value)
    assert caught.value.param in ("kv_cache_memory", "num_gpu_blocks_override")


def test_this_machine_says_something_sensible() -> None:
    assert memory.available_bytes() <= memory.installed_bytes()
    assert 64 << 20 < memory.available_bytes() < 1 << 50


def blocks(**kwargs: object) -> int:
    defaults = {"groups": [(1000, 0)], "block_size": 16, "max_model_len": 160, "weight_bytes": 5000}
    return memory.num_blocks(**{**defaults, **kwargs})  # type: ignore[arg-type]


def test_the_order_of_precedence() -> None:
    assert blocks(blocks=7, cache_bytes=10**6, utilization=0.5, available=10**6) == 7
    assert blocks(cache_bytes=10_999, utilization=0.5, available=10**6) == 10
    assert blocks(utilization=0.5, available=100_000) == 45  # half, less the weights
    assert blocks(available=10**9) == 32 * 10  # room for 32 full sequences
    assert blocks(available=100_000) == 40  # at most 40 %


@pytest.mark.parametrize("budget", [2_240, 10_999, 100_800, 100_999, 120_000, 320_000, 10**6])
def test_what_bounded_groups_leave_goes_to_the_others(budget: int) -> None:
    groups = [(1000, 0), (100, 90), (20, 300)]
    got = blocks(groups=groups, cache_bytes=budget, installed=10**9)

    def used(count: int) -> int:
        return 1000 * count + 100 * min(count, 90) + 20 * min(count, 300)

    assert used(got) <= budget < used(got + 1)


@pytest.mark.parametrize(
    ("kwargs", "param"),
    [
        ({"cache_bytes": 1999}, "kv_cache_memory"),
        ({"utilization": 0.05, "available": 100_000}, "gpu_memory_utilization"),
        ({"available": 1000}, "gpu_memory_utilization"),
    ],
)
def test_no_room(kwargs: dict[str, int], param: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"2 blocks of 1000 bytes") as caught:
        blocks(**kwargs)
    assert caught.value.param == param


def test_more_blocks_than_can_be_numbered() -> None:
    with pytest.raises(InvalidArgumentError, match=r"3000000000 blocks .* at most 2147483647") as caught:
        blocks(cache_bytes=3_000_000_000_000, installed=10**13)
    assert caught.value.param == "kv_cache_memory"
