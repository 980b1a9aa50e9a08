"""GGUF headers: what a well-formed file gives, and that a malformed one gives an error and nothing worse."""

import struct

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _engine
from octavo.errors import ModelError, OctavoError
from octavo.models.checkpoint import open_checkpoint

Q = gguf.GGMLQuantizationType


def write_sample(path, alignment=None):
    """A small llama-like file with every kind of metadata value and three tensors."""
    w = gguf.GGUFWriter(path, "llama")
    if alignment:
        w.add_custom_alignment(alignment)
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -5)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -3000)
    w.add_uint32("t.u32", 4_000_000_000)
    w.add_int32("t.i32", -2_000_000_000)
    w.add_uint64("t.u64", 2**63 + 1)
    w.add_int64("t.i64", -(2**62))
    w.add_float32("t.f32", 0.1)
    w.add_float64("t.f64", 0.1)
    w.add_bool("t.bool", True)
    w.add_string("t.string", "naïve ✓")
    w.add_array("t.ints", [1, -2, 3])
    w.add_array("t.strings", ["a", "", "ü"])
    w.add_token_list([b"ok", b"\xff\xfe"])
    w.add_uint32("llama.attention.head_count", 2)
    w.add_tensor("output_norm.weight", np.arange(8, dtype=np.float32))
    w.add_tensor("blk.0.attn_q.weight", np.arange(64, dtype=np.float32).reshape(8, 8).astype(np.float16))
    w.add_tensor(
        "blk.0.ffn_up.weight", gguf.quants.quantize(np.ones((4, 64), np.float32), Q.Q4_1), raw_dtype=Q.Q4_1
    )
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("gguf") / "sample.gguf")


def test_metadata_has_the_written_values(sample):
    meta = _engine.GgufFile(str(sample)).metadata()
    assert meta["general.architecture"] == "llama"
    assert {k[2:]: v for k, v in meta.items() if k.startswith("t.")} == {
        "u8": 200, "i8": -5, "u16": 60000, "i16": -3000, "u32": 4_000_000_000, "i32": -2_000_000_000,
        "u64": 2**63 + 1, "i64": -(2**62), "f32": float(np.float32(0.1)), "f64": 0.1, "bool": True,
        "string": "naïve ✓", "ints": [1, -2, 3], "strings": ["a", "", "ü"],
    }  # fmt: skip
    assert meta["tokenizer.ggml.tokens"] == ["ok", b"\xff\xfe"]


@pytest.mark.parametrize("alignment", [None, 64, 4096])
def test_tensors_have_their_new_names_and_the_right_bytes(tmp_path, alignment):
    path = write_sample(tmp_path / "aligned.gguf", alignment)
    assert _engine.GgufFile(str(path)).tensors() == [
        ("output_norm.weight", (8,), "f32", 32),
        ("blk.0.attn_q.weight", (8, 8), "f16", 128),
        ("blk.0.ffn_up.weight", (4, 64), "q4_1", 160),
    ]
    renames = {"output_norm": "model.norm", "blk.*.attn_q": "model.layers.*.q_proj", "blk.*.attn_k": "none"}
    weights = _engine.WeightFiles.open_gguf(str(path), renames)
    assert weights.read_vector("model.norm.weight").tolist() == list(range(8))
    assert weights.names() == ["blk.0.ffn_up.weight", "model.layers.0.q_proj.weight", "model.norm.weight"]


def test_a_missing_file_a_folder_and_an_empty_file_are_named(tmp_path):
    empty = tmp_path / "empty.gguf"
    empty.touch()
    for path, words in [
        (tmp_path / "none.gguf", "No such file"),
        (tmp_path, "not a regular file"),
        (empty, "is empty"),
    ]:
        with pytest.raises(ModelError, match=words) as e:
            _engine.GgufFile(str(path))
        assert e.value.param == str(path)


def test_another_architecture_is_refused_by_name_with_those_that_are_there(tmp_path):
    w = gguf.GGUFWriter(tmp_path / "x.gguf", "mamba")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    words = r"general.architecture is 'mamba'; supported: 'llama', 'qwen2'"
    with pytest.raises(ModelError, match=words) as e:
        open_checkpoint(tmp_path / "x.gguf")
    assert (e.value.code, e.value.param) == ("unsupported", "general.architecture")


def test_another_quantization_is_refused_by_tensor_and_type(tmp_path):
    w = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    w.add_tensor("blk.0.ffn_up.weight", np.zeros((2, 82), np.uint8), raw_dtype=Q.IQ2_S)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    found = _engine.GgufFile(str(tmp_path / "x.gguf")).tensors()
    assert found == [("blk.0.ffn_up.weight", (2, 256), "IQ2_S", 164)]
    with pytest.raises(ModelError, match=r"blk.0.ffn_up.weight has type IQ2_S; supported: f32, f16") as e:
        _engine.WeightFiles.open_gguf(str(tmp_path / "x.gguf"))
    assert e.value.code == "unsupported"


# Hand-made headers: [tensors, pairs], then pairs and tensors as given.


def text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


def tensor(name="t", dims=(4,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def header(pairs=(), tensors=(), version=3, n_pairs=None, n_tensors=None, data=b""):
    counts = (len(tensors) if n_tensors is None else n_tensors, len(pairs) if n_pairs is None else n_pairs)
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + data


U32 = struct.pack("<I", 4)
HUGE = 2**63

MALFORMED = {
    "magic": (b"GGML" + bytes(60), "does not begin with GGUF"),
    "magic alone": (b"GGUF", "ends inside the GGUF version"),
    "version 1": (header(version=1), "GGUF version 1; supported are versions 2 and 3"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
    "tensor count": (header(n_tensors=HUGE), f"number of tensors is {HUGE}, but the"),
    "pair count": (header(n_pairs=HUGE), f"number of metadata pairs is {HUGE}, but the"),
    "string length": (header([struct.pack("<Q", 2**64 - 1) + bytes(16)]), "the limit is 65535"),
    "key twice": (header([text("k") + U32 + U32] * 2), "metadata key k occurs twice"),
    "key not ascii": (header([text(b"k\xff") + U32 + U32]), "not printable ASCII"),
    "value type": (header([text("k") + struct.pack("<II", 13, 0)]), "k has unknown value type 13"),
    "array length": (
        header([text("k") + struct.pack("<IIQ", 9, 10, HUGE)]),
        f"length of k is {HUGE}, but the",
    ),
    "array of unknown": (
        header([text("k") + struct.pack("<IIQ", 9, 99, 1)]),
        "array of unknown value type 99",
    ),
    "deep array": (
        header([text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9]),
        "deeper than 4",
    ),
    "alignment": (
        header([text("general.alignment") + U32 + struct.pack("<I", 24)]),
        "is 24, must be a power of two from 8 to 1048576",
    ),
    "alignment type": (
        header([text("general.alignment") + struct.pack("<If", 6, 1.0)]),
        "non-negative integer",
    ),
    "no dimensions": (header(tensors=[tensor(dims=()) + bytes(16)]), "t has 0 dimensions, must be 1 to 4"),
    "five dimensions": (header(tensors=[tensor(dims=(1,) * 5)]), "t has 5 dimensions"),
    "empty dimension": (header(tensors=[tensor(dims=(4, 0))]), "a dimension of 0"),
    "overflow": (header(tensors=[tensor(dims=(2**40, 2**40))]), "too large"),
    "unknown type": (header(tensors=[tensor(kind=77)], data=bytes(64)), "type 77, which is not known"),
    "ragged block": (
        header(tensors=[tensor(dims=(33,), kind=8)], data=bytes(64)),
        "33 weights, not a multiple of the 32",
    ),
    "misaligned": (
        header(tensors=[tensor(offset=4)], data=bytes(64)),
        "offset 4, not a multiple of the alignment 32",
    ),
    "past the end": (
        header(tensors=[tensor(dims=(17,))], data=bytes(64)),
        "needs 68 bytes at offset 0 of the data section, which has 64: the file is truncated, 4 bytes are missing",
    ),
    "far offset": (header(tensors=[tensor(offset=2**64 - 32)], data=bytes(64)), "needs 16 bytes at offset"),
    "overlap": (
        header(tensors=[tensor("a", (16,)), tensor("b", (4,), offset=32)], data=bytes(64)),
        "tensors a and b overlap",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_header_is_refused_with_the_reason(tmp_path, case):
    raw, words = MALFORMED[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=words):
        _engine.GgufFile(str(path))


def test_a_tensor_name_that_occurs_twice_is_refused(tmp_path):
    arch = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    path = tmp_path / "twice.gguf"
    path.write_bytes(header([arch], [tensor("a"), tensor("a", offset=32)], data=bytes(64)))
    with pytest.raises(ModelError, match="tensor a occurs twice"):
        _engine.WeightFiles.open_gguf(str(path))


def try_to_open(path):
    """Reads all there is to read; the only way to fail is an OctavoError."""
    try:
        file = _engine.GgufFile(str(path))
        file.metadata(), file.tensors()
        weights = _engine.WeightFiles.open_gguf(file)
        for name, shape, fmt, _ in weights.tensors():
            if len(shape) == 1 and fmt in ("f32", "f16", "bf16"):
                weights.read_vector(name)
    except OctavoError as e:
        assert str(e)


@pytest.mark.parametrize("examples", [200, pytest.param(1300, marks=pytest.mark.slow)])
def test_a_mutated_file_never_does_worse_than_an_error(sample, tmp_path, examples):
    @settings(max_examples=examples, deadline=None)
    @given(data=st.data())
    def mutate(data):
        raw = bytearray(sample.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(raw) - 1))
            value = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
            raw[at] = value
        if data.draw(st.booleans()):
            del raw[data.draw(st.integers(1, len(raw))) :]
        path = tmp_path / "mutated.gguf"
        path.write_bytes(raw)
        try_to_open(path)

    mutate()


def test_every_truncation_is_an_error_or_loses_nothing(sample, tmp_path):
    raw = sample.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(1, len(raw), 3):
        path.write_bytes(raw[:size])
        try_to_open(path)
