"""`octavo serve` as a process of its own with keys for several tenants, and what can be seen of it from outside."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from octavo.errors import OctavoError
from octavo_bench.peers.process import end, free_port, spawn
from octavo_bench.serve.scrape import parse_samples

START_LIMIT = 300.0
PATIENCE = 600.0  # a machine that is busy with other things may stand still for long
_MAIN = "import sys; from octavo.cli import main; sys.exit(main())"
_MEMORY = re.compile(r"^(Anonymous|Swap):\s+(\d+) kB", re.MULTILINE)


def own_memory(pid: int) -> int:
    """Bytes that no file stands behind, those in the swap space included."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(kilobytes) for _, kilobytes in _MEMORY.findall(text))


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@dataclass
class ServedProcess:
    """A running ``octavo serve``.

    Attributes:
        keys: API keys, each of a tenant of its own.
    """

    process: asyncio.subprocess.Process
    base: str
    log: Path
    keys: Sequence[str]
    admin: str
    session: aiohttp.ClientSession

    @property
    def pid(self) -> int:
        return self.process.pid

    async def get(self, path: str, key: str | None = None) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self.session.get(self.base + path, headers=headers) as response:
            return response.status, await response.text()

    async def samples(self) -> dict[str, float]:
        """``/metrics``, summed over labels."""
        _, text = await self.get("/metrics", self.admin)
        sums: dict[str, float] = {}
        for name, value in parse_samples(text).items():
            bare = name.partition("{")[0]
            sums[bare] = sums.get(bare, 0.0) + value
            if reason := re.search(r'finished_reason="(\w+)"', name):
                sums[f"finished {reason[1]}"] = value
        return sums

    async def audit(self) -> tuple[bool, str]:
        status, text = await self.get("/debug/audit", self.admin)
        return status == 200, text

    async def stop(self, limit: float) -> tuple[int | None, float]:
        """SIGTERM; the exit status (None: it did not end in time) and how long it took."""
        begin = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.process.wait(), limit), time.perf_counter() - begin
        except asyncio.TimeoutError:
            return None, time.perf_counter() - begin


@asynccontextmanager
async def served(
    model: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    tenants: int,
    tag: str = "server",
) -> AsyncIterator[ServedProcess]:
    """Starts ``octavo serve MODEL ARGUMENTS`` with a key for each of ``tenants`` and ends it."""
    port, log = free_port(), folder / f"{tag}.log"
    keys = [secrets.token_hex(8) for _ in range(tenants)]
    admin = secrets.token_hex(8)
    file = folder / f"{tag}.keys"
    file.touch(mode=0o600)
    file.write_text("".join(f"tenant{i}={key}\n" for i, key in enumerate(keys)))
    command = [
        *(sys.executable, "-c", _MAIN, "serve", model, "--port", str(port)),
        *("--api-key-file", str(file), "--admin-key", admin, "--log-level", "warning"),
        *arguments,
    ]
    process = await spawn(command, log)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30), timeout=timeout
    ) as session:
        server = ServedProcess(process, f"http://127.0.0.1:{port}", log, keys, admin, session)
        try:
            await _until_ready(server)
            yield server
        finally:
            await end(process, 30.0)
            file.unlink(missing_ok=True)


async def _until_ready(server: ServedProcess) -> None:
    give_up = time.perf_counter() + START_LIMIT
    while time.perf_counter() < give_up:
        if server.process.returncode is not None:
            said = server.log.read_text(errors="replace").strip()[-500:]
            raise OctavoError(f"the server ended while starting: {said}", param="model")
        try:
            if (await server.get("/ready"))[0] == 200:
                return
        except (aiohttp.ClientError, OSError):
            pass
        await asyncio.sleep(0.05)
    raise OctavoError(f"the server was not ready within {START_LIMIT:.0f} s, see {server.log}", param="model")
