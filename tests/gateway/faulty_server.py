"""`octavo serve` with the default model, whose engine fails on command: arguments of `inject_fault`, a JSON line each.

    python faulty_server.py '{"stall_seconds": 1.0}'

Answers "ok" to each line once the fault is armed. There is no such way into a server that users start.
"""

from __future__ import annotations

import json
import sys
import threading

from octavo.engine_args import EngineArgs
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.server.served_engine import ServedEngine
from octavo_gateway.server.settings import ServerSettings
from octavo_gateway.server.start import run_server

ENGINE = {
    "model": "smollm2",
    "max_model_len": 512,
    "max_num_seqs": 8,
    "threads": 2,
    "num_gpu_blocks_override": 96,
}


def load() -> ServedEngine:
    engine = ServedEngine(EngineArgs.from_kwargs(ENGINE), trace=True)
    threading.Thread(target=obey, args=(engine,), daemon=True).start()
    return engine


def obey(engine: ServedEngine) -> None:
    for line in sys.stdin:
        engine._engine.model.engine.inject_fault(**json.loads(line))
        print("ok", flush=True)


if __name__ == "__main__":
    settings = ServerSettings(port=0, **json.loads(sys.argv[1]))
    sys.exit(run_server(load, ApiSettings(served_names=("faulty",)), settings))
