"""What the log says of a fault: where it happened, never the values it happened with."""

from __future__ import annotations

import logging
import traceback

_log = logging.getLogger("octavo.gateway")


def log_fault(what: str, fault: BaseException) -> None:
    """Type and place of `fault`. Its message may quote a prompt: it is there at level debug only."""
    if _log.isEnabledFor(logging.DEBUG):
        _log.error("%s", what, exc_info=fault)
        return
    places = "".join(traceback.format_tb(fault.__traceback__)).rstrip()
    _log.error("%s: %s\n%s", what, type(fault).__qualname__, places)
