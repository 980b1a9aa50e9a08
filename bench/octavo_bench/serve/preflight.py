"""Is the server there, and does it know the model? Asked before anything is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import aiohttp

from octavo.errors import OctavoError
from octavo_bench.client import Load, Shot, Target, run_load
from octavo_bench.datasets.prompts import Prompt

PATIENCE = 30.0


async def list_models(root: str, headers: Mapping[str, str], verify_tls: bool) -> list[str] | None:
    """The names at ``/v1/models``; None where there is no such list.

    Raises:
        OctavoError: there is no server.
    """
    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=verify_tls),
                timeout=aiohttp.ClientTimeout(total=PATIENCE),
                headers=headers,
            ) as session,
            session.get(f"{root}/v1/models") as response,
        ):
            if response.status in (401, 403):
                raise OctavoError(f"{root} answers HTTP {response.status}: give its key with --api-key")
            document = await response.json(content_type=None) if response.status == 200 else None
    except (aiohttp.ClientError, OSError, TimeoutError, asyncio.TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise OctavoError(f"{root} cannot be reached: {reason}", param="base_url") from error
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("data"), list):
        return None
    return [str(model["id"]) for model in document["data"] if isinstance(model, dict) and "id" in model]


async def wait_until_ready(
    root: str, headers: Mapping[str, str], verify_tls: bool, limit: float
) -> list[str] | None:
    """``list_models`` of a server that may still be starting, tried for ``limit`` seconds."""
    give_up = time.monotonic() + limit
    while True:
        try:
            return await list_models(root, headers, verify_tls)
        except OctavoError as error:
            if error.param != "base_url" or time.monotonic() >= give_up:
                raise
            await asyncio.sleep(0.25)


async def check(target: Target, known: list[str] | None, prompt: Prompt) -> None:
    """Asks for one token behind a short prompt and raises ``OctavoError`` where it is not answered."""
    (record,) = await run_load(target, Load([Shot(0.0, prompt, 1)]))
    if record.ok:
        return
    if known and target.model not in known and (record.failure or "").startswith("HTTP 4"):
        raise OctavoError(
            f"{target.root} has no model {target.model!r}; it has {', '.join(known)}", param="model"
        )
    raise OctavoError(f"{target.url} does not answer a small request: {record.error}")
