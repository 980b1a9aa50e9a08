"""Where a fork begins."""

from __future__ import annotations

from dataclasses import dataclass

from octavo import checks
from octavo.errors import InvalidArgumentError
from octavo.outputs import RequestOutput
from octavo.sampling_params import SamplingParams


@dataclass
class ForkPoint:
    """The beginning of a choice that a fork continues.

    Attributes:
        engine_id: the engine's number for the request.
        choice: which of its choices.
        ids: the tokens that are kept, prompt included.
        params: how the fork goes on.
    """

    engine_id: int
    choice: int
    ids: list[int]
    params: SamplingParams


def fork_point(
    output: RequestOutput, params: SamplingParams | None, choice: int, position: int | None
) -> ForkPoint:
    """Check where and how ``output`` is to be forked.

    Args:
        params: None is the parameters of the request itself.
        position: how many tokens are kept, prompt included; None is all that were generated so far.
    """
    origin = output.origin if isinstance(output, RequestOutput) else None
    if origin is None:
        raise InvalidArgumentError(
            "request must be an output of this engine, and not a pickled one", param="request"
        )
    choice = checks.integer("choice", choice, 0, len(origin.token_ids) - 1)
    history = output.prompt_token_ids + origin.token_ids[choice]
    if position is not None:
        history = history[: checks.integer("position", position, 1, len(history))]
    return ForkPoint(origin.engine_id, choice, history, origin.params if params is None else params)
