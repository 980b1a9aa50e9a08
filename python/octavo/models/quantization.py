"""How the matrices of a folder's safetensors are quantized, from ``quantization_config`` of its ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo import _engine
from octavo.errors import ModelError

METHODS = ("gptq", "awq", "compressed-tensors", "fp8")
_CT_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")


def read(config: Mapping[str, Any], source: str) -> _engine.CheckpointQuantization | None:
    """The quantization of a checkpoint; None where its matrices are plain floats.

    Raises:
        ModelError: the method or one of its options cannot be read; ``param`` names the field.
    """
    given = config.get("quantization_config")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise _refused(source, "", given, "an object", "corrupt_file")
    out = _engine.CheckpointQuantization()
    method = given.get("quant_method")
    if method == "mxfp4":  # of gpt-oss: its experts alone, whose tensors say so themselves
        return None
    if method in METHODS:
        out.method = method
    else:
        raise _refused(source, "quant_method", method, " or ".join(METHODS))
    if method == "gptq":
        out.bits = _bits(given, "bits", source)
        out.zero_less_one = given.get("checkpoint_format", "gptq") != "gptq_v2"
    elif method == "awq":
        out.bits = _bits(given, "bits" if "bits" in given else "w_bit", source)
        version = given.get("version", "gemm")
        if str(version).lower() != "gemm":
            raise _refused(source, "version", version, "gemm")
    elif method == "fp8":
        out.bits = 8
        if given.get("fmt", "e4m3") not in ("e4m3", "float8_e4m3fn"):
            raise _refused(source, "fmt", given["fmt"], "e4m3")
        _block(out, given.get("weight_block_size"), "weight_block_size", source)
    else:
        _compressed_tensors(out, given, source)
    return out


def _compressed_tensors(out: _engine.CheckpointQuantization, given: Mapping[str, Any], source: str) -> None:
    format_ = given.get("format")
    if format_ not in _CT_FORMATS:
        raise _refused(source, "format", format_, " or ".join(_CT_FORMATS))
    groups = given.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _refused(source, "config_groups", groups, "at least one group", "corrupt_file")
    schemes = []
    for name, group in groups.items():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            raise _refused(source, f"config_groups.{name}.weights", weights, "an object", "corrupt_file")
        kind, bits = weights.get("type", "int"), weights.get("num_bits")
        if (kind, bits) not in (("int", 4), ("int", 8), ("float", 8)):
            raise _refused(
                source, f"config_groups.{name}.weights", f"{kind} of {bits} bits", "int4, int8 or fp8"
            )
        schemes.append(
            (
                int(weights["num_bits"]),
                weights.get("block_structure") if weights.get("strategy") == "block" else None,
            )
        )
    if any(scheme != schemes[0] for scheme in schemes):
        raise _refused(source, "config_groups", schemes, "groups with equal bits and blocks")
    out.bits = schemes[0][0]
    _block(out, schemes[0][1], "config_groups.weights.block_structure", source)


def _bits(given: Mapping[str, Any], name: str, source: str) -> int:
    bits = given.get(name)
    if bits not in (4, 8):
        raise _refused(source, name, bits, "4 or 8")
    return int(bits)


def _block(out: _engine.CheckpointQuantization, block: Any, name: str, source: str) -> None:
    if block is None:
        return
    if (
        not isinstance(block, list)
        or len(block) != 2
        or not all(type(n) is int and 0 < n < 1 << 20 for n in block)
    ):
        raise _refused(source, name, block, "[rows, columns]", "corrupt_file")
    out.block_rows, out.block_columns = block


def _refused(source: str, name: str, value: Any, expected: str, code: str = "unsupported") -> ModelError:
    param = f"quantization_config.{name}".rstrip(".")
    return ModelError(f"{source}: {param} is {value!r}; {expected} can be read", code=code, param=param)
