"""The server's own ``/metrics``, read while the load runs."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import aiohttp

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*(?:\{.*\})?)\s+(\S+)")
# Histograms' buckets and what describes the process itself would only swell the result.
_LEFT_OUT = re.compile(r"_bucket\{|_created\b|^python_|^process_|^go_")


def parse_samples(text: str) -> dict[str, float]:
    """Samples of a Prometheus exposition by name and labels, buckets left out."""
    samples = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match and not _LEFT_OUT.search(match[1]):
            try:
                samples[match[1]] = float(match[2])
            except ValueError:
                continue
    return samples


class Scraper:
    """Reads the samples at an interval while its ``async with`` lasts; a server without them gives none.

    Attributes:
        times: when, in seconds after the start.
        series: samples by name, one value per time, NaN where it was absent.
    """

    def __init__(self, url: str, headers: Mapping[str, str], verify_tls: bool, interval: float) -> None:
        self.url, self.interval = url, interval
        self.times: list[float] = []
        self.series: dict[str, list[float]] = {}
        self._headers, self._verify_tls = headers, verify_tls
        self._session: aiohttp.ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._start = 0.0

    async def __aenter__(self) -> Scraper:
        if self.interval > 0:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._verify_tls),
                timeout=aiohttp.ClientTimeout(total=10),
                headers=self._headers,
            )
            self._start = time.perf_counter()
            if await self._read():
                self._task = asyncio.create_task(self._loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            await self._read()
        if self._session is not None:
            await self._session.close()

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self.interval)
            await self._read()

    async def _read(self) -> bool:
        assert self._session is not None
        try:
            async with self._session.get(self.url) as response:
                text = await response.text() if response.status == 200 else ""
        except (aiohttp.ClientError, OSError, TimeoutError, asyncio.TimeoutError, ValueError):
            return False
        samples = parse_samples(text)
        if not samples:
            return False
        for name in samples.keys() - self.series.keys():
            self.series[name] = [float("nan")] * len(self.times)
        self.times.append(time.perf_counter() - self._start)
        for name, values in self.series.items():
            values.append(samples.get(name, float("nan")))
        return True

    def report(self) -> dict[str, dict[str, Any]]:
        """Per sample that is not zero throughout: first and last value, least, most and mean."""
        out = {}
        for name, values in sorted(self.series.items()):
            known = [v for v in values if v == v]
            if known and any(known):
                mean = sum(known) / len(known)
                out[name] = {
                    "first": known[0], "last": known[-1], "min": min(known), "max": max(known), "mean": mean,
                }  # fmt: skip
        return out
