"""`octavo serve` with the stub: a process of its own, ``python -m octavo_bench.gateway.server``."""

from __future__ import annotations

import sys

from octavo_bench.gateway.stub import StubEngine
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.server.settings import ServerSettings
from octavo_gateway.server.start import run_server

if __name__ == "__main__":
    sys.exit(run_server(StubEngine, ApiSettings(served_names=("stub",)), ServerSettings(port=0)))
