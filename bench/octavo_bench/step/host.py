"""What a step costs the host while a GPU computes: the emulated one with its kernels left out, which takes no time."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from octavo import _engine
from octavo.errors import InvalidArgumentError
from octavo_bench.models.shapes import LlamaShape, tensors
from octavo_bench.step.measure import Part, part_of

SEQUENCES = (1, 32, 256)
PROMPT, OUTPUT = 1024, 192
# No kernel runs, so the model's size does not matter.
SHAPE = LlamaShape(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=128, vocab=4096, positions=2048)
END = 1


def leave_kernels_out() -> None:
    """From here on launches of the emulated GPU do nothing, in this process, and every draw is token 0.

    Raises:
        InvalidArgumentError: the build has no emulator.
    """
    library = Path(_engine.__file__).resolve().parent / "liboctavo_cuda_emulated.so"
    if not library.exists():
        raise InvalidArgumentError(
            "--host needs a build with the CUDA emulator: -Ccmake.define.OCTAVO_CUDA_EMULATOR=ON",
            param="host",
        )
    ctypes.CDLL(str(library)).octavo_emulator_skip_kernels(1)


def _engine_without_kernels(most: int) -> _engine.Engine:
    config = _engine.ModelConfig()
    config.architecture = "llama"
    config.num_layers, config.hidden, config.intermediate = SHAPE.layers, SHAPE.hidden, SHAPE.intermediate
    config.heads, config.kv_heads, config.head_dim = SHAPE.heads, SHAPE.kv_heads, SHAPE.head_dim
    config.vocab, config.max_positions = SHAPE.vocab, SHAPE.positions
    config.tied_embeddings = True
    config.eos_token_ids = [END]
    rope = _engine.RopeConfig()
    rope.rotary_dim = SHAPE.head_dim
    config.rope = rope
    engine = _engine.Engine(
        config,
        _engine.WeightFiles.from_tensors(dict(tensors(SHAPE))),
        device="cuda-emulated",
        max_model_len=SHAPE.positions,
        num_blocks=most * ((PROMPT + OUTPUT) // 16 + 1),
        max_num_seqs=most,
        max_num_batched_tokens=8192,
        trace=True,
    )
    words = np.frombuffer(b" the" * SHAPE.vocab, np.uint8).tobytes()
    ends = np.arange(0, len(words) + 1, 4, dtype=np.uint32)
    engine.start(_engine.TokenTable(words, ends, np.zeros(SHAPE.vocab, np.uint8), False))
    return engine


def _decode(engine: _engine.Engine, sequences: int) -> Part:
    """The steps in which all of them decode."""
    params = _engine.SamplingParams()
    params.temperature, params.max_tokens = 0.0, OUTPUT
    random = np.random.default_rng(sequences)
    channel = engine.open_channel()
    engine.pause()
    ids = [
        engine.submit(random.integers(2, SHAPE.vocab, PROMPT).tolist(), params, channel)
        for _ in range(sequences)
    ]
    engine.resume()
    waiting, running = set(ids), set(ids)
    trace = None
    while running:
        channel.wait(100)
        starting = bool(waiting)
        for delta in channel.drain():
            if delta.error is not None:
                raise RuntimeError(f"a request failed: {delta.error[2]}")
            waiting.discard(delta.id)
            if delta.finish is not None:
                if trace is None:
                    trace = engine.take_trace()
                running.discard(delta.id)
        if starting:
            engine.take_trace()  # up to here prompts were computed
    engine.close_channel(channel)
    assert trace is not None
    return part_of(f"{sequences} sequences" if sequences > 1 else "1 sequence", trace)


def measure() -> Iterator[Part]:
    """Decoding at each number of sequences, each run once before to warm up."""
    leave_kernels_out()
    for sequences in SEQUENCES:
        engine = _engine_without_kernels(sequences)
        try:
            _decode(engine, sequences)
            yield _decode(engine, sequences)
        finally:
            engine.shutdown()
