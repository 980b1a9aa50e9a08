"""One line per finished HTTP request. What it says of a request is numbers: never a prompt or an answer."""

from __future__ import annotations

import logging
import time

from octavo_gateway.protocol.errors import quoted
from octavo_gateway.server.call import Call

_log = logging.getLogger("octavo.gateway.requests")
_MAX_PATH = 128


class RequestLog:
    """Logs at level info, or not at all."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled

    def finished(self, call: Call, outcome: str) -> None:
        """`outcome`: the status of the answer, or why there was none."""
        if not self._enabled or not _log.isEnabledFor(logging.INFO):
            return
        request = call.request
        _log.info(
            "%s %s %s in %.3f s%s, id %s",
            request.method[:16],
            request.rel_url.raw_path[:_MAX_PATH],  # percent-encoded: one line whatever a client sends
            outcome,
            time.monotonic() - call.caller.arrival,
            _tokens(call),
            quoted(call.id, _MAX_PATH),
        )


def _tokens(call: Call) -> str:
    if not call.generations:
        return ""
    usages = [generation.usage for generation in call.generations]
    prompt = sum(usage.prompt_tokens for usage in usages)
    output = sum(usage.completion_tokens for usage in usages)
    cached = sum(generation.cached_tokens for generation in call.generations)
    finishes = dict.fromkeys(f for generation in call.generations for f in generation.finishes)
    return f", {prompt} prompt tokens ({cached} cached), {output} output tokens, finish {'/'.join(finishes)}"
