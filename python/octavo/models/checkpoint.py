"""A model on disk, opened: its configuration and its weight files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from octavo import _engine
from octavo.engine_args import ON_LOAD
from octavo.errors import InvalidArgumentError, ModelError
from octavo.models import families, quantization, safetensors
from octavo.models.config import from_hugging_face
from octavo.models.gguf import from_gguf

DENSE = ("f32", "f16", "bf16")
KV_DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 1, "int8": 1}
_KV_SCALE_BYTES = {"fp8": 4, "int8": 4}  # of each token and KV head, for K and for V


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk.

    Attributes:
        path: the GGUF file or the model folder.
        config: the engine's configuration.
        weights: the tensors, mapped.
        metadata: all metadata of a GGUF file (the tokenizer is in it); empty for a folder.
        stored_quantization: how the files say that they are quantized ("gguf", "gptq", ...); None: as plain floats.
    """

    path: Path
    config: _engine.ModelConfig
    weights: _engine.WeightFiles
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    stored_quantization: str | None = None

    @property
    def is_gguf(self) -> bool:
        return bool(self.metadata)

    def quantized(self, name: str | None) -> Checkpoint:
        """The checkpoint with its float matrices quantized while they are packed ("q8" or "q4").

        Raises:
            InvalidArgumentError: it holds no float matrix, or not the stored kind ``name``.
        """
        if name in (None, self.stored_quantization):
            return self
        if name not in ON_LOAD:
            held = self.stored_quantization or "plain floats"
            raise InvalidArgumentError(
                f"quantization {name!r} is not what {self.path} holds: {held}", param="quantization"
            )
        dense = [
            tensor for tensor, shape, fmt, _ in self.weights.tensors() if len(shape) == 2 and fmt in DENSE
        ]
        if not dense:
            raise InvalidArgumentError(
                f"quantization {name!r} needs float matrices; those of {self.path} are quantized already",
                param="quantization",
            )
        return replace(self, weights=_engine.WeightFiles.quantize_on_load(self.weights, name))


@dataclass(frozen=True)
class ModelInfo:
    """What ``octavo info`` prints of a model."""

    architecture: str
    container: str  # "gguf" or "safetensors"
    formats: dict[str, int]  # tensors of each weight format, most frequent first
    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    tied_embeddings: bool
    kv_bytes_per_token: int  # in all layers, those included that keep a window only
    windows: dict[int, int]  # layers by how many tokens they see, 0: all
    file_bytes: int


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a GGUF file or a folder with ``config.json`` and safetensors.

    Raises:
        ModelError: a file is missing or corrupt, or the model has something the engine does not support.
    """
    if path.is_file():
        gguf = _engine.GgufFile(str(path))
        metadata = gguf.metadata()
        family = families.of_gguf(metadata.get("general.architecture"), str(path))
        weights = _engine.WeightFiles.open_gguf(gguf, family.gguf_renames())
        return Checkpoint(path, from_gguf(metadata, weights, source=str(path)), weights, metadata, "gguf")
    config_path = path / "config.json"
    generation_path = path / "generation_config.json"
    generation = _read_json(generation_path) if generation_path.is_file() else None
    described = _read_json(config_path)
    config = from_hugging_face(described, generation, source=str(config_path))
    stored = quantization.read(described, str(config_path))
    method = None if stored is None else stored.method
    return Checkpoint(path, config, safetensors.open_folder(path, stored), stored_quantization=method)


def describe(checkpoint: Checkpoint, kv_dtype: str = "f16") -> ModelInfo:
    """The figures of a model; ``kv_dtype`` decides the bytes per token of cache."""
    if kv_dtype not in KV_DTYPE_BYTES:
        raise InvalidArgumentError(
            f"kv_dtype must be one of {', '.join(KV_DTYPE_BYTES)}, got {kv_dtype!r}", param="kv_dtype"
        )
    config = checkpoint.config
    windows = Counter(layer.window for layer in config.layers) or {0: config.num_layers}
    formats: Counter[str] = Counter()
    parameters = 0
    for _, shape, fmt, _ in checkpoint.weights.tensors():
        formats[fmt] += 1
        count = 1
        for size in shape:
            count *= size
        parameters += count
    return ModelInfo(
        architecture=config.architecture,
        container="gguf" if checkpoint.is_gguf else "safetensors",
        formats=dict(formats.most_common()),
        parameters=parameters,
        layers=config.num_layers,
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        vocab=config.vocab,
        max_positions=config.max_positions,
        tied_embeddings=config.tied_embeddings,
        kv_bytes_per_token=2
        * config.num_layers
        * config.kv_heads
        * (config.head_dim * KV_DTYPE_BYTES[kv_dtype] + _KV_SCALE_BYTES.get(kv_dtype, 0)),
        windows=dict(sorted(windows.items())),
        file_bytes=checkpoint.weights.file_bytes,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as e:
        raise ModelError(f"cannot read {path}: {e.strerror}", code="not_found", param=str(path)) from e
    except (ValueError, RecursionError) as e:
        raise ModelError(f"{path}: not valid JSON ({e})", code="corrupt_file", param=str(path)) from e
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object", code="corrupt_file", param=str(path))
    return value
