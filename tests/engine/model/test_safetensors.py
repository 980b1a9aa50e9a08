"""Safetensors files and tensors of the caller: the same tensors as their own library reads, or an error by name."""

import json
import struct

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _engine
from octavo.errors import InvalidArgumentError, ModelError, OctavoError
from octavo.models.safetensors import open_folder, read_header

TENSORS = {
    "a.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "b.bias": torch.linspace(-2, 2, 5).to(torch.bfloat16),
    "c.weight": torch.linspace(-2, 2, 7).to(torch.float16),
    "n": torch.arange(3),
}
LISTED = [
    ("a.weight", (3, 4), "f32", 48),
    ("b.bias", (5,), "bf16", 10),
    ("c.weight", (7,), "f16", 14),
    ("n", (3,), "I64", 24),
]


def save_sharded(folder, shards):
    for i, tensors in enumerate(shards):
        safetensors.torch.save_file(tensors, folder / f"part-{i}.safetensors")
    placed = {name: f"part-{i}.safetensors" for i, tensors in enumerate(shards) for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    return placed


def check_values(weights):
    assert weights.tensors() == LISTED
    for name in ("b.bias", "c.weight"):
        assert weights.read_vector(name).tolist() == TENSORS[name].float().tolist()


def test_a_single_file(tmp_path):
    safetensors.torch.save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    weights = open_folder(tmp_path)
    check_values(weights)
    assert weights.file_bytes == 96
    with pytest.raises(ModelError, match=r"tensor n has format I64; supported: f32, f16") as e:
        weights.read_vector("n")
    assert e.value.code == "unsupported"


def test_shards(tmp_path):
    save_sharded(
        tmp_path,
        [{k: TENSORS[k] for k in ("a.weight", "n")}, {k: TENSORS[k] for k in ("b.bias", "c.weight")}],
    )
    check_values(open_folder(tmp_path))


def test_a_missing_shard_and_a_missing_tensor_are_named(tmp_path):
    placed = save_sharded(tmp_path, [{"a": TENSORS["a.weight"]}, {"n": TENSORS["n"]}])
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": placed | {"ghost": "part-0.safetensors"}}))
    with pytest.raises(ModelError, match=r"says tensor ghost is in part-0.safetensors, it is not") as e:
        open_folder(tmp_path)
    assert (e.value.code, e.value.param) == ("not_found", "ghost")
    (tmp_path / "part-1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"names part-1.safetensors, which is not there"):
        open_folder(tmp_path)


def test_a_folder_without_weights_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"holds neither model.safetensors nor") as e:
        open_folder(tmp_path)
    assert e.value.code == "not_found"


@pytest.mark.parametrize("shard", ["../x.safetensors", "/etc/passwd", "", "..", 3])
def test_a_shard_outside_the_folder_is_refused(tmp_path, shard):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"t": shard}}))
    with pytest.raises(ModelError, match="which is not a file name"):
        open_folder(tmp_path)


def raw_file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


MALFORMED = {
    "empty": (b"", "the file has 0"),
    "short": (b"\1\2\3", "the file has 3"),
    "long header": (raw_file({}, length=2**62), "header has 4611686018427387904 bytes, the limit is 2"),
    "not json": (raw_file(b"{nope"), "not valid JSON"),
    "not utf-8": (raw_file(b'{"\xff": 1}'), "not valid JSON"),
    "deep json": (raw_file(b"[" * 100_000), "not valid JSON"),
    "a list": (raw_file([1]), "not a JSON object"),
    "name twice": (raw_file(b'{"t": {}, "t": {}}'), "t occurs twice"),
    "no object": (raw_file({"t": 3}), "tensor t is not described by an object"),
    "no dtype": (raw_file({"t": entry(dtype=None)}), "tensor t has dtype None"),
    "unknown dtype": (raw_file({"t": entry(dtype="F4")}, bytes(8)), "dtype F4; supported: F32, F16, BF16"),
    "negative size": (raw_file({"t": entry(shape=(-1,))}), r"tensor t has shape \[-1\]"),
    "huge shape": (raw_file({"t": entry(shape=(2**62, 2**62))}, bytes(8)), "negative or too large"),
    "one offset": (raw_file({"t": entry(offsets=(0,))}), r"data_offsets \[0\]"),
    "backwards": (raw_file({"t": entry(offsets=(8, 0))}, bytes(8)), "lies at bytes 8 to 0"),
    "past the end": (
        raw_file({"t": entry()}, bytes(7)),
        "lies at bytes 0 to 8 of the data section, which has 7",
    ),
    "wrong size": (raw_file({"t": entry(shape=(3,))}, bytes(8)), "needs 12 bytes, the header gives it 8"),
    "overlap": (raw_file({"t": entry(), "u": entry(offsets=(4, 12))}, bytes(12)), "tensor u overlaps t"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_header_is_refused_with_the_reason(tmp_path, case):
    raw, words = MALFORMED[case]
    (tmp_path / "model.safetensors").write_bytes(raw)
    with pytest.raises(ModelError, match=words):
        open_folder(tmp_path)


def test_the_engine_does_not_believe_what_it_is_handed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(64))
    for offset, record, words in [
        (65, ("t", "F32", [1], 0, 4), "the header ends at byte 65, the file has 64"),
        (8, ("t", "F32", [-1], 0, 4), "negative or too large"),
        (8, ("t", "F32", [1], 2**64 - 4, 2**64 - 1), "of the data section, which has 56"),
    ]:
        with pytest.raises(ModelError, match=words):
            _engine.WeightFiles.open_safetensors([(str(path), offset, [record])])


def test_a_tensor_that_is_not_aligned_is_read_all_the_same(tmp_path):
    values = struct.pack("<2f", 1.5, -2.5)
    (tmp_path / "model.safetensors").write_bytes(raw_file({"t": entry(offsets=(1, 9))}, b"\0" + values))
    assert open_folder(tmp_path).read_vector("t").tolist() == [1.5, -2.5]


@pytest.mark.parametrize("examples", [150, pytest.param(850, marks=pytest.mark.slow)])
def test_a_mutated_header_never_does_worse_than_an_error(tmp_path, examples):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(TENSORS, path)
    sound = path.read_bytes()
    end = 8 + int.from_bytes(sound[:8], "little")

    @settings(max_examples=examples, deadline=None)
    @given(data=st.data())
    def mutate(data):
        raw = bytearray(sound)
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, end - 1))] = data.draw(
                st.sampled_from(b'0129{}[]",:-aF') | st.integers(0, 255)
            )
        if data.draw(st.booleans()):
            del raw[data.draw(st.integers(0, len(raw))) :]
        path.write_bytes(raw)
        try:
            weights = open_folder(tmp_path)
            for name, shape, fmt, _ in weights.tensors():
                if len(shape) == 1 and fmt in ("f32", "f16", "bf16"):
                    weights.read_vector(name)
        except OctavoError as e:
            assert str(e)

    mutate()


def test_headers_of_two_files_with_the_same_tensor_are_refused(tmp_path):
    for name in ("x", "y"):
        safetensors.torch.save_file({"t": torch.ones(2)}, tmp_path / name)
    with pytest.raises(ModelError, match="tensor t occurs twice"):
        _engine.WeightFiles.open_safetensors([read_header(tmp_path / "x"), read_header(tmp_path / "y")])


def test_torch_and_numpy_tensors_come_in_without_a_copy():
    bias, norm = torch.ones(5, dtype=torch.bfloat16), np.ones(4, np.float32)
    weights = _engine.WeightFiles.from_tensors({"bias": bias, "norm": norm})
    bias[2], norm[1] = 3, 7
    assert weights.read_vector("bias").tolist() == [1, 1, 3, 1, 1]
    assert weights.read_vector("norm").tolist() == [1, 7, 1, 1]


def test_tensors_of_the_caller_live_as_long_as_the_weights():
    import gc
    import weakref

    tensor = np.arange(1000, dtype=np.float32)
    alive = weakref.ref(tensor)
    weights = _engine.WeightFiles.from_tensors({"t": tensor})
    del tensor
    gc.collect()
    assert alive() is not None
    assert weights.read_vector("t")[999] == 999
    del weights
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.ones(3, 4).T, "must be contiguous: dimension 1 has stride 4, not 1"),
        (torch.ones(3, requires_grad=True), "requires grad"),
        (torch.ones(3, device="meta"), "tensor q"),
        (
            np.frombuffer(bytes(9), np.uint8)[1:].view(np.float32),
            "must be aligned to its 4 bytes per element",
        ),
        ([1.0, 2.0], "can be shared without a copy"),
    ],
)
def test_a_tensor_that_cannot_be_shared_is_refused_by_name(tensor, words):
    with pytest.raises(InvalidArgumentError, match=words) as e:
        _engine.WeightFiles.from_tensors({"q": tensor})
    assert e.value.param == "q"


def test_a_tensor_of_another_dtype_is_refused_by_name():
    with pytest.raises(ModelError, match="tensor q must be float32, float16 or bfloat16"):
        _engine.WeightFiles.from_tensors({"q": torch.arange(3)})
