"""The host emulator of CUDA: what kernels and host code rely on in it, and the mistakes that it shows."""

import ctypes
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from emulator_library import library_path, load

MALLOC, LAUNCH, SYNC, COPY, DEVICE = range(5)
OUT_OF_MEMORY, ILLEGAL_ADDRESS, INVALID_VALUE = 2, 700, 1


@pytest.fixture
def trial():
    library = load("octavo_emulator_trial")
    library.trial_status.argtypes = [ctypes.c_size_t, ctypes.c_int]
    library.octavo_emulator_live_bytes.restype = ctypes.c_size_t
    library.octavo_emulator_set_memory.argtypes = [ctypes.c_size_t]
    library.octavo_emulator_reset()
    before = library.octavo_emulator_live_bytes()
    yield library
    library.octavo_emulator_reset()
    assert library.octavo_emulator_live_bytes() == before


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize("seed", [0, 1, 2, 77])
def test_a_kernel_with_its_barriers_gives_the_same_result_under_every_order(trial, seed):
    trial.octavo_emulator_set_seed(seed)
    n = 64
    x = np.arange(n * n, dtype=np.float32).reshape(n, n)
    out = np.zeros_like(x)
    trial.trial_transpose(pointer(x), pointer(out), n)
    assert np.array_equal(out, x.T)
    neighbours = np.zeros(96, np.int32)
    trial.trial_neighbour(1, pointer(neighbours), 96)
    assert np.array_equal(neighbours, 100 + (np.arange(96) + 1) % 96)


def test_a_missing_barrier_shows(trial):
    expected, outcomes = 100 + (np.arange(96) + 1) % 96, set()
    for seed in range(4):
        trial.octavo_emulator_set_seed(seed)
        out = np.zeros(96, np.int32)
        trial.trial_neighbour(0, pointer(out), 96)
        assert not np.array_equal(out, expected)
        assert -1 in out  # shared memory is poisoned before each block
        outcomes.add(out.tobytes())
    assert len(outcomes) > 1


def test_an_asynchronous_copy_may_land_as_late_as_its_wait(trial):
    x = np.arange(4 * 64, dtype=np.int32)
    expected = np.where((np.arange(4 * 64) // 4) % 2 == 0, x, 0)
    for seed in range(4):
        trial.octavo_emulator_set_seed(seed)
        out = np.zeros_like(x)
        trial.trial_async_copy(1, pointer(x), pointer(out), 64)
        assert np.array_equal(out, expected)
        trial.trial_async_copy(0, pointer(x), pointer(out), 64)
        assert np.array_equal(out, expected if seed % 2 else np.full_like(x, -1))


def run_mistake(which: int) -> subprocess.CompletedProcess[str]:
    code = (
        f"import ctypes; ctypes.CDLL({str(library_path('octavo_emulator_trial'))!r}).trial_mistake({which})"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("mistake", "message"), [(0, "divergence"), (1, "lane that has exited")], ids=["barrier", "exited"]
)
def test_divergence_ends_the_process_with_the_place(mistake, message):
    run = run_mistake(mistake)
    assert run.returncode == -signal.SIGABRT
    assert message in run.stderr
    assert "emulator_trial.cpp" in run.stderr


def test_the_sanitizer_sees_past_the_end_of_shared_memory(request):
    if not request.config.getoption("--sanitized"):
        pytest.skip("needs the address sanitizer")
    run = run_mistake(2)
    assert "heap-buffer-overflow" in run.stderr
    assert "past_the_end" in run.stderr


def test_warp_collectives(trial):
    x = np.random.default_rng(0).integers(-100, 100, 32).astype(np.int32)
    rows = 13
    out = np.zeros((rows, 32), np.int32)
    lanes = np.arange(32)
    trial.octavo_emulator_set_seed(5)
    trial.trial_collectives(pointer(x), pointer(out), rows)
    ballot = np.uint32(sum(1 << i for i in range(32) if x[i] > 0)).view(np.int32)
    low = x.view(np.uint32)
    expected = [
        np.full(32, x[3]),
        x[lanes ^ 5],
        np.where(lanes % 16 + 7 < 16, x[np.minimum(lanes + 7, 31)], x),
        np.where(lanes % 8 >= 2, x[np.maximum(lanes - 2, 0)], x),
        np.full(32, ballot),
        np.full(32, (x > 90).any()),
        np.full(32, 1),
        np.full(32, x.sum()),
        np.full(32, x.min()),
        np.full(32, x.max()),
        np.full(32, np.bitwise_or.reduce(x)),
        np.full(32, (x > 0).sum()),
        ((low & 0xFFFF) | 0x33 << 16 | 0x44 << 24).astype(np.uint32).view(np.int32),
    ]
    assert np.array_equal(out, np.array(expected, np.int32))


def test_atomics_count_every_thread(trial):
    counter, total, greatest = np.zeros(1, np.uint32), np.zeros(1, np.float32), np.full(1, -1, np.int32)
    trial.trial_count(5, 96, pointer(counter), pointer(total), pointer(greatest))
    assert (counter[0], total[0], greatest[0]) == (480, 240.0, 479)


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_tensor_core_product_equals_the_exact_one(trial, dtype, transposed):
    generator = torch.Generator().manual_seed(3)
    # Few bits, so that every partial sum is exact in f32 and in any order.
    a = torch.randint(-8, 9, (16, 16), generator=generator).to(dtype)
    b = torch.randint(-8, 9, (8, 16), generator=generator).to(dtype) / 4
    given = (b.T if transposed else b).contiguous()
    c = np.zeros((16, 8), np.float32)
    trial.trial_product(
        int(dtype is torch.bfloat16),
        transposed,
        pointer(a.view(torch.int16).numpy()),
        pointer(given.view(torch.int16).numpy()),
        pointer(c),
    )
    assert np.array_equal(c, (a.double() @ b.double().T).float().numpy())


def test_conversions_round_as_torch(trial):
    generator = torch.Generator().manual_seed(4)
    x = torch.cat(
        [
            torch.randn(4000, generator=generator) * torch.logspace(-9, 5, 4000),
            torch.tensor(
                [0.0, -0.0, 1e-8, 448.0, 464.0, -1e6, 65504.0, 65520.0, 2.0**-9, 2.0**-10, 3 * 2.0**-10]
            ),
        ]
    )
    n = len(x)
    f16, bf16, fp8 = np.zeros(n, np.int16), np.zeros(n, np.int16), np.zeros(n, np.uint8)
    back = np.zeros(n, np.float32)
    trial.trial_convert(pointer(x.numpy()), pointer(f16), pointer(bf16), pointer(fp8), pointer(back), n)
    assert np.array_equal(f16, x.half().view(torch.int16).numpy())
    assert np.array_equal(bf16, x.bfloat16().view(torch.int16).numpy())
    saturated = x.clamp(-448, 448).to(torch.float8_e4m3fn)
    assert np.array_equal(fp8, saturated.view(torch.uint8).numpy())
    assert np.array_equal(back, saturated.float().numpy())


def test_a_pinned_buffer_is_read_when_the_stream_gets_there(trial):
    assert trial.trial_pinned_reuse(1) == 1
    assert trial.trial_pinned_reuse(0) == 2


def test_a_captured_graph_runs_at_its_launches_alone(trial):
    assert trial.trial_graph(0) == 0
    assert trial.trial_graph(3) == 7


def test_events_order_streams_and_polling_drives_them(trial):
    assert trial.trial_events() == 3


def test_calls_fail_on_request(trial):
    assert trial.trial_status(256, 0) == 0
    for call, error in [(MALLOC, OUT_OF_MEMORY), (LAUNCH, 701), (SYNC, 999)]:
        trial.octavo_emulator_fail(call, 1, error)
        assert trial.trial_status(256, 0) == 0
        assert trial.trial_status(256, 0) == error
        assert trial.trial_last_error() == error
        assert trial.trial_last_error() == 0
        assert trial.trial_status(256, 0) == 0


def test_an_error_that_ends_the_context_stays(trial):
    trial.octavo_emulator_fail(SYNC, 0, ILLEGAL_ADDRESS)
    for _ in range(3):
        assert trial.trial_status(256, 0) == ILLEGAL_ADDRESS
    trial.octavo_emulator_reset()
    assert trial.trial_status(256, 0) == 0


def test_memory_and_shared_memory_end_somewhere(trial):
    trial.octavo_emulator_set_memory(1 << 20)
    assert trial.trial_status(1 << 20, 0) == 0
    assert trial.trial_status((1 << 20) + 1, 0) == OUT_OF_MEMORY
    assert trial.trial_status(256, 228 << 10) == INVALID_VALUE
