"""`octavo serve` with the scripted engine, for tests of a whole process: scripted_server.py JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from scripted import Script, ScriptedEngine

from octavo.errors import ModelError
from octavo_gateway.api.engine import ModelInfo
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.server.flags import set_up_logging
from octavo_gateway.server.settings import ServerSettings
from octavo_gateway.server.start import run_server

options: dict[str, Any] = json.loads(sys.argv[1])


def load() -> ScriptedEngine:
    time.sleep(options.get("load_seconds", 0.0))
    while "loads_after" in options and not os.path.exists(options["loads_after"]):
        time.sleep(0.01)
    if "load_error" in options:
        raise ModelError(options["load_error"], code="not_found", param="model")
    tokens = options.get("tokens", 3)
    pace = {name: options.get(name, 0.0) for name in ("step_seconds", "first_step_seconds")}
    if options.get("hangs_at_shutdown"):
        ScriptedEngine.shutdown = lambda self: time.sleep(60)  # type: ignore[method-assign]
    model = ModelInfo("scripted", 4096, {}, {"num_blocks": 64})
    script = Script(steps=[([120], "x")] * tokens, **pace)
    engine = ScriptedEngine(script, model=model, max_num_seqs=options.get("max_num_seqs", 256))
    if "lost_after" in options:
        threading.Timer(options["lost_after"], setattr, (engine, "device_lost", "an illegal address")).start()
    return engine


if "log_level" in options:
    set_up_logging(options["log_level"])
given = ("port", "shutdown_seconds", "key_file", "crash_folder", "api_keys")
server = ServerSettings(**{"port": 0, **{name: options[name] for name in given if name in options}})
sys.exit(run_server(load, ApiSettings(served_names=("tiny",)), server))
