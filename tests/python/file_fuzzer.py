"""Model files made wrong on purpose: JSON headers, shard indexes, configurations, tokenizers, GGUF metadata.

    python tests/python/file_fuzzer.py FOLDER [INPUTS] [SEED]

makes that many from the model folder and opens each. The same seed makes the same files.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import shutil
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo import _engine
from octavo.chat import ChatTemplate
from octavo.errors import OctavoError
from octavo.models.checkpoint import Checkpoint, describe, open_checkpoint
from octavo.tokenizer import from_folder, from_gguf

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 0.5),
    *(-0.0, 1e308, 1e-320, float("nan"), float("inf"), "", "x", "\ufeff", "../x", "\ud800", "F32", "y" * 5000),
    *([], {}, [None], [[]], [[[[[[[[]]]]]]]], {"": None}, [0, -1], [2**63, 2**63], {"type": "Sequence"}),
)  # fmt: skip
_TEXT = struct.Struct("<Q")


@dataclass
class Outcome:
    """What became of the inputs."""

    verdicts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds of CPU time


def mutate(value: Any, rng: random.Random) -> Any:
    """A copy with one thing in it made wrong, anywhere."""
    root = [copy.deepcopy(value)]
    places: list[tuple[Any, Any]] = []
    _collect(root, places)
    holder, key = rng.choice(places)
    kind = rng.randrange(6)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        other = rng.choice([*holder, "extra", "__metadata__", ""])
        holder[other] = holder[key]
    elif kind == 2 and isinstance(holder[key], int):
        holder[key] = rng.choice(
            [holder[key] + 1, holder[key] - 1, holder[key] * 2, -holder[key], holder[key] * 10**9]
        )
    elif kind == 3:
        holder[key] = copy.deepcopy(_at(*rng.choice(places)))
    elif kind == 4 and isinstance(holder[key], list):
        holder[key] = holder[key] * 2 if rng.random() < 0.5 else holder[key][:-1]
    else:
        holder[key] = copy.deepcopy(rng.choice(ODD))
    return root[0]


def _at(holder: Any, key: Any) -> Any:
    return holder[key]


def _collect(holder: Any, places: list[tuple[Any, Any]]) -> None:
    """Every place in the data; of a long list or map only its ends."""
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    for key in keys if len(keys) < 60 else keys[:20] + keys[-20:]:
        places.append((holder, key))
        if isinstance(holder[key], (dict, list)):
            _collect(holder[key], places)


def damage(raw: bytes, rng: random.Random) -> bytes:
    """Bytes with a few of them changed, cut or doubled."""
    data = bytearray(raw)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            data[at : at + rng.randrange(9)] = b""
        elif kind == 2:
            data[at:at] = data[at : at + rng.randrange(40)]
        elif kind == 3:
            data[at : at + 8] = rng.choice((0, 1, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little")
        else:
            data[at:at] = rng.choice(
                (b"\xff", b"\x00", b"[" * 2000, b'{"a":' * 2000, b"1" * 5000, b"\xef\xbb\xbf")
            )
    return bytes(data)


def dump(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def open_everything(path: Path) -> None:
    """What loading reads, up to the engine with its weights packed."""
    checkpoint = open_checkpoint(path)
    describe(checkpoint)
    tokenizer = from_gguf(checkpoint.metadata) if checkpoint.is_gguf else from_folder(path)
    tokenizer.token_table(min(checkpoint.config.vocab, 2**20))
    tokenizer.encode("Hello 世界 <|im_end|>")
    if tokenizer.chat_template is not None:
        ChatTemplate(tokenizer)
    build(checkpoint)


def build(checkpoint: Checkpoint) -> None:
    engine = _engine.Engine(
        checkpoint.config,
        checkpoint.weights,
        max_model_len=min(32, checkpoint.config.max_positions),
        num_blocks=8,
        max_num_seqs=2,
        max_num_batched_tokens=16,
        threads=1,
    )
    engine.shutdown()


class Files:
    """A model folder, file by file, and ways to spoil it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.good = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
        self.parsed = {name: json.loads(raw) for name, raw in self.good.items() if name.endswith(".json")}
        self.shards = self._split()
        self._dirty: set[str] = set()

    def _split(self) -> dict[str, bytes]:
        """The weights once more, as two shards with an index."""
        raw = self.good["model.safetensors"]
        length = _TEXT.unpack_from(raw)[0]
        header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
        header.pop("__metadata__", None)
        names = sorted(header)
        out: dict[str, bytes] = {}
        places = {}
        for number, part in enumerate((names[::2], names[1::2]), 1):
            shard = f"model-{number:05}-of-00002.safetensors"
            described, body = {}, b""
            for name in part:
                begin, end = header[name]["data_offsets"]
                described[name] = {**header[name], "data_offsets": [len(body), len(body) + end - begin]}
                body += data[begin:end]
                places[name] = shard
            out[shard] = with_header(described, body)
        out["model.safetensors.index.json"] = dump({"metadata": {}, "weight_map": places})
        return out

    def spoil(self, rng: random.Random) -> None:
        """Restore what the last input changed, then make one file wrong, sometimes two."""
        for name in self._dirty:
            if name in self.good:
                (self.folder / name).write_bytes(self.good[name])
            else:
                (self.folder / name).unlink(missing_ok=True)
        self._dirty.clear()
        kinds: list[Callable[[random.Random], None]] = [
            self._config,
            self._header,
            self._shards,
            self._tokenizer,
        ]
        for _ in range(rng.choice((1, 1, 1, 2))):
            rng.choice(kinds)(rng)

    def _write(self, name: str, raw: bytes) -> None:
        self._dirty.add(name)
        (self.folder / name).write_bytes(raw)

    def _spoiled(self, value: Any, raw: bytes, rng: random.Random) -> bytes:
        return damage(raw, rng) if rng.random() < 0.2 else dump(mutate(value, rng))

    def _config(self, rng: random.Random) -> None:
        name = rng.choice([n for n in self.parsed if n != "tokenizer.json"])
        self._write(name, self._spoiled(self.parsed[name], self.good[name], rng))

    def _header(self, rng: random.Random) -> None:
        self._write("model.safetensors", spoiled_shard(self.good["model.safetensors"], rng))

    def _shards(self, rng: random.Random) -> None:
        for name, raw in self.shards.items():
            self._write(name, raw)
        victim = rng.choice([*self.shards, "model.safetensors.index.json"])
        if victim.endswith(".json"):
            index = json.loads(self.shards[victim])
            if rng.random() < 0.2:  # a shard that is the index itself
                index["weight_map"] = dict.fromkeys(index["weight_map"], victim)
            self._write(victim, self._spoiled(index, self.shards[victim], rng))
        elif rng.random() < 0.2:
            (self.folder / victim).unlink()
        else:
            self._write(victim, spoiled_shard(self.shards[victim], rng))

    def _tokenizer(self, rng: random.Random) -> None:
        name = "tokenizer.json"
        self._write(name, self._spoiled(self.parsed[name], self.good[name], rng))


def with_header(header: Any, data: bytes) -> bytes:
    raw = dump(header)
    return _TEXT.pack(len(raw)) + raw + data


def spoiled_shard(raw: bytes, rng: random.Random) -> bytes:
    length = _TEXT.unpack_from(raw)[0]
    if rng.random() < 0.25:
        return damage(raw[: 8 + length], rng) + raw[8 + length :]
    header = mutate(json.loads(raw[8 : 8 + length]), rng)
    return with_header(header, raw[8 + length :][: rng.choice((None, None, 1000, -1))])


def small_tokenizer() -> dict[str, Any]:
    """A tokenizer.json of a few words, quick to parse."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocab = {c: i for i, c in enumerate([*map(chr, range(33, 127)), "Ġ", "ab", "abc"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b"), ("ab", "c")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<|im_end|>", normalized=False)])
    document: dict[str, Any] = json.loads(backend.to_str())
    return document


def prepare(model: Path, work: Path) -> Files:
    """A copy of the model folder with a small tokenizer."""
    folder = work / "model"
    shutil.copytree(model, folder, dirs_exist_ok=True)
    (folder / "tokenizer.json").write_bytes(dump(small_tokenizer()))
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    config = {"eos_token": "<|im_end|>", "chat_template": template, "bos_token": {"content": "<|im_end|>"}}
    (folder / "tokenizer_config.json").write_bytes(dump(config))
    (folder / "generation_config.json").write_bytes(dump({"eos_token_id": [97], "temperature": 0.5}))
    return Files(folder)


def _take(outcome: Outcome, name: str, read: Callable[[], None]) -> None:
    start = time.thread_time()
    try:
        read()
        outcome.verdicts["accepted"] += 1
    except OctavoError as error:
        outcome.verdicts[error.code] += 1
        if not str(error):
            outcome.problems.append(f"{name}: no message")
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome.problems.append(f"{name}: {type(error).__name__}: {error}")
    outcome.slowest = max(outcome.slowest, time.thread_time() - start)


def fuzz(files: Files, count: int, seed: int) -> Outcome:
    """Open ``count`` spoiled models."""
    outcome = Outcome()
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        files.spoil(rng)
        _take(outcome, f"seed {seed}, input {number}", lambda: open_everything(files.folder))
    return outcome


def small_metadata() -> list[dict[str, Any]]:
    """What GGUF files say of small tokenizers, of each kind."""
    bpe = small_tokenizer()["model"]
    tokens = [*bpe["vocab"], "<|im_end|>"]
    common = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3],
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
        "tokenizer.ggml.bos_token_id": len(tokens) - 1,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    merges = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.merges": ["a b", "ab c"],
    }
    scores = {
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": True,
    }
    unigram = {"tokenizer.ggml.model": "t5"}
    return [common | merges, common | scores | {"tokenizer.ggml.model": "llama"}, common | scores | unigram]


def open_tokenizer(metadata: dict[str, Any]) -> None:
    tokenizer = from_gguf(metadata)
    tokenizer.token_table()
    tokenizer.encode("Hello 世界 <|im_end|>")
    if tokenizer.chat_template is not None:
        ChatTemplate(tokenizer)


def fuzz_metadata(count: int, seed: int) -> Outcome:
    """Build ``count`` tokenizers from spoiled metadata."""
    kinds = small_metadata()
    outcome = Outcome()
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        metadata = rng.choice(kinds)
        for _ in range(rng.choice((1, 1, 2, 3))):
            changed = mutate(metadata, rng)
            metadata = changed if isinstance(changed, dict) else metadata
        metadata = {key: value for key, value in metadata.items() if value is not None}
        _take(outcome, f"metadata, seed {seed}, input {number}", lambda m=metadata: open_tokenizer(m))
    return outcome


def main() -> int:
    import tempfile

    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    with tempfile.TemporaryDirectory() as work:
        outcomes = [fuzz(prepare(Path(sys.argv[1]), Path(work)), count, seed), fuzz_metadata(count, seed)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for outcome in outcomes:
        print(f"{count} inputs, slowest {outcome.slowest:.3f} s of CPU time, peak memory {peak} MiB")
        print(dict(outcome.verdicts), f"{len(outcome.problems)} problems", *outcome.problems[:20], sep="\n")
    return 1 if any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
