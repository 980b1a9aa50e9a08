"""``octavo bench peers``."""

from __future__ import annotations

import argparse
import asyncio
import functools
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo_bench.peers.base import Peer


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="what Octavo and llama.cpp serve: a GGUF file")
    parser.add_argument(
        "--octavo-model", metavar="MODEL", help="what Octavo serves: a file or a folder; default: --model"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads for every peer")
    parser.add_argument("--isa", default="", help="instruction set of Octavo; empty: the best")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; figures are medians over them")
    parser.add_argument("--only", default="", help="rows to run, of w1,w2,w3_cold,w3_warm,w4; empty: all")
    parser.add_argument("--vocab", type=int, default=49152, help="prompt token ids are drawn below this")
    parser.add_argument("--llama-server", metavar="PROGRAM", help="llama.cpp's llama-server")
    parser.add_argument(
        "--llama-model", metavar="FILE", action="append", default=[], help="more files for llama.cpp"
    )
    parser.add_argument("--openvino-python", metavar="PROGRAM", help="an interpreter with openvino_genai")
    parser.add_argument(
        "--openvino-model", metavar="PATH", action="append", default=[],
        help="its model; repeat it for several; default: --model",
    )  # fmt: skip
    parser.add_argument(
        "--openvino-property", metavar="NAME=VALUE", action="append", default=[], help="for its CPU plugin"
    )
    parser.add_argument("--transformers-python", metavar="PROGRAM", help="an interpreter with transformers")
    parser.add_argument("--transformers-model", metavar="FOLDER", help="its model folder")
    parser.add_argument("--vllm", metavar="PROGRAM", help="vLLM's command")
    parser.add_argument("--vllm-model", metavar="FOLDER", help="its model folder")
    parser.add_argument("--dtype", default="float32", help="of vLLM and transformers: float32 or bfloat16")
    parser.add_argument("--short", action="store_true", help="W2 of 8 x (64 + 32), W3 of 8, W4 of 2 x 1,024")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every round's figures as JSON")


def _peers(flags: argparse.Namespace, logs: Path) -> list[Peer]:
    from octavo_bench.peers.http_peer import HttpPeer
    from octavo_bench.peers.worker_peer import WorkerPeer

    t = str(flags.threads)
    served = flags.octavo_model or flags.model
    octavo = [sys.executable, "-m", "octavo", "serve", served, "--port", "{port}", "--threads", t,
              "--served-model-name", "octavo", "--isa", flags.isa]  # fmt: skip
    library = [served, t, flags.isa]
    peers: list[Peer] = [
        HttpPeer("octavo", octavo, logs / "octavo.log", "octavo"),
        WorkerPeer("octavo library", sys.executable, "octavo_worker.py", library, logs / "library.log"),
    ]
    if flags.llama_server:
        for model in [flags.model, *flags.llama_model]:
            command = [flags.llama_server, "-m", model, "--host", "127.0.0.1", "--port", "{port}", "-np", "32",
                       "-c", "40960", "-t", t, "-tb", t, "-b", "2048", "-ub", "512", "--no-webui"]  # fmt: skip
            peers.append(HttpPeer(f"llama.cpp {Path(model).stem}", command, logs / "llama.log", "any"))
    if flags.openvino_python:
        for model in flags.openvino_model or [flags.model]:
            peers.append(
                WorkerPeer(
                    f"OpenVINO {Path(model).stem}",
                    flags.openvino_python,
                    "openvino_worker.py",
                    [model, t, *flags.openvino_property],
                    logs / "openvino.log",
                )
            )
    if flags.transformers_python:
        arguments = [flags.transformers_model or flags.model, t, flags.dtype]
        script = "transformers_worker.py"
        peers.append(
            WorkerPeer("transformers", flags.transformers_python, script, arguments, logs / "tf.log")
        )
    if flags.vllm:
        model = flags.vllm_model or flags.model
        command = [
            flags.vllm,
            "serve",
            model,
            "--dtype",
            flags.dtype,
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
        ]
        # GiB of cache: enough for all rows.
        env = {"VLLM_CPU_KVCACHE_SPACE": "4", "OMP_NUM_THREADS": t}
        peers.append(HttpPeer("vLLM", command, logs / "vllm.log", model, env))
    return peers


def run(flags: argparse.Namespace) -> int:
    from octavo.errors import InvalidArgumentError
    from octavo_bench.peers import report
    from octavo_bench.peers.rounds import ROWS, measure
    from octavo_bench.workloads import SHORT, Shape

    if flags.dtype not in ("float32", "bfloat16"):
        raise InvalidArgumentError(f"--dtype must be float32 or bfloat16, got {flags.dtype!r}", param="dtype")
    only = [name for name in flags.only.split(",") if name]
    known = [row.key for row in ROWS]
    for name in only:
        if name not in known:
            raise InvalidArgumentError(f"--only {name}: there are {', '.join(known)}", param="only")
    shape = SHORT if flags.short else Shape()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no peer outlives the command
    logs = Path(tempfile.mkdtemp(prefix="octavo-peers-"))
    peers = []
    for peer in _peers(flags, logs):
        if why := peer.missing():
            print(f"{peer.name} does not take part: {why}")
        else:
            peers.append(peer)
    figures = asyncio.run(
        measure(
            peers,
            rounds=flags.rounds,
            shape=shape,
            vocab=flags.vocab,
            only=only,
            say=functools.partial(print, flush=True),
        )
    )
    print(f"\n{report.machine()}, {flags.threads} threads, medians of {flags.rounds}\n")
    print(report.text_table(figures, ("octavo", "octavo library")))
    if flags.out:
        settings = {k: str(v) for k, v in vars(flags).items()}
        report.write_json(figures, flags.out, settings)
    return 1 if any(f.failure for f in figures) else 0
