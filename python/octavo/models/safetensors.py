"""Safetensors headers: a JSON object in front of the data, read here and checked again by the engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeGuard

from octavo import _engine
from octavo.errors import ModelError

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"

Record = tuple[str, str, list[int], int, int]  # name, dtype, shape, begin, end
Header = tuple[str, int, list[Record]]  # path, offset of the data section, tensors


def open_folder(
    folder: Path, quantization: _engine.CheckpointQuantization | None = None
) -> _engine.WeightFiles:
    """The weights of a model folder: ``model.safetensors``, or the shards that its index names.

    ``quantization`` says how its matrices are quantized; None: they are plain floats.

    Raises:
        ModelError: a file or tensor is missing or malformed; ``param`` names it.
    """
    if (folder / _INDEX).is_file():
        headers = _read_shards(folder)
    elif (folder / _SINGLE).is_file():
        headers = [read_header(folder / _SINGLE)]
    else:
        raise ModelError(
            f"{folder} holds neither {_SINGLE} nor {_INDEX}", code="not_found", param=str(folder / _SINGLE)
        )
    return _engine.WeightFiles.open_safetensors(headers, quantization)


def read_header(path: Path) -> Header:
    """The tensors of one file: names, dtypes, shapes and byte ranges."""
    try:
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            length = int.from_bytes(f.read(8), "little")
            limit = min(MAX_HEADER_BYTES, size - 8)
            if length > limit or size < 8:
                raise _corrupt(
                    path, f"its header has {length} bytes, the limit is {limit}, the file has {size}"
                )
            raw = f.read(length)
    except OSError as e:
        raise ModelError(f"cannot read {path}: {e.strerror}", code="not_found", param=str(path)) from e
    tensors = _parse_object(path, raw)
    tensors.pop("__metadata__", None)
    return str(path), 8 + length, [_record(path, name, value) for name, value in tensors.items()]


def _read_shards(folder: Path) -> list[Header]:
    index = folder / _INDEX
    try:
        placed = _parse_object(index, index.read_bytes()).get("weight_map")
    except OSError as e:
        raise ModelError(f"cannot read {index}: {e.strerror}", code="not_found", param=str(index)) from e
    if not isinstance(placed, dict) or not placed:
        raise _corrupt(index, "it has no weight_map")
    for name, shard in placed.items():
        if not _is_file_name(shard):
            raise _corrupt(index, f"tensor {name} is in {str(shard)[:100]!r}, which is not a file name", name)
    headers = {}
    for shard in sorted(set(placed.values())):
        if not (folder / shard).is_file():
            raise ModelError(
                f"{index} names {shard}, which is not there", code="not_found", param=str(folder / shard)
            )
        headers[shard] = read_header(folder / shard)
    found = {shard: {record[0] for record in header[2]} for shard, header in headers.items()}
    for name, shard in placed.items():
        if name not in found[shard]:
            raise ModelError(
                f"{index} says tensor {name} is in {shard}, it is not", code="not_found", param=name
            )
    return list(headers.values())


def _parse_object(path: Path, raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise _corrupt(path, f"{twice} occurs twice", twice)
        return out

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as e:
        raise _corrupt(path, f"not valid JSON ({e})") from e
    if not isinstance(value, dict):
        raise _corrupt(path, "not a JSON object")
    return value


def _record(path: Path, name: str, value: Any) -> Record:
    if not isinstance(value, dict):
        raise _corrupt(path, f"tensor {name} is not described by an object", name)
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not name.isprintable():
        raise _corrupt(path, f"the tensor name {name!r} is not printable")
    if not isinstance(dtype, str) or not dtype.isascii():
        raise _corrupt(path, f"tensor {name} has dtype {dtype!r}", name)
    if not _are_sizes(shape):
        raise _corrupt(path, f"tensor {name} has shape {shape!r}", name)
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _corrupt(path, f"tensor {name} has data_offsets {offsets!r}", name)
    return name, dtype, shape, offsets[0], offsets[1]


def _is_file_name(value: Any) -> bool:
    """Of a file in the same folder, with a name that file systems take."""
    if not isinstance(value, str) or value != os.path.basename(value) or value in ("", ".", ".."):
        return False
    return value.isprintable() and len(value.encode()) <= 255  # lone surrogates are not printable


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)


def _corrupt(path: Path, message: str, param: str | None = None) -> ModelError:
    return ModelError(f"{path}: {message}", code="corrupt_file", param=param or str(path))
