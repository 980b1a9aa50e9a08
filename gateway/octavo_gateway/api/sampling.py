"""From request fields and defaults to SamplingParams: request, then command line, then model, then API."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from octavo_gateway.api.engine import ModelInfo
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.protocol.common import GenerationFields
from octavo_gateway.protocol.errors import from_engine, invalid, quoted

if TYPE_CHECKING:
    from octavo import SamplingParams

_log = logging.getLogger("octavo.gateway.sampling")

_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,8}")

# How long the lists of a request may be: each costs time per token, and allowed_token_ids is a part of the vocabulary.
MAX_ITEMS = {"stop_token_ids": 1024, "bad_words": 1024, "logit_bias": 1024, "allowed_token_ids": 2**18}

# Fields whose default may come from the command line or from the model.
_DEFAULTABLE = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
)
# Fields that reach SamplingParams under their own name.
_PLAIN = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "bad_words",
    "allowed_token_ids",
    "skip_special_tokens",
)


def default_sampling(model: ModelInfo, settings: ApiSettings) -> dict[str, Any]:
    """The values that stand where a request says nothing."""
    values: dict[str, Any] = {}
    if settings.use_generation_config:
        values.update(model.generation_config)
    values.update(settings.default_sampling)
    return values


def describe_defaults(model: ModelInfo, settings: ApiSettings) -> str:
    """Those values in words, each with where it comes from."""
    from octavo import SamplingParams

    theirs = model.generation_config if settings.use_generation_config else {}
    own, given = SamplingParams(), []
    for name in _DEFAULTABLE:
        value, source = getattr(own, name), ""
        if name in settings.default_sampling:
            value, source = settings.default_sampling[name], " (command line)"
        elif name in theirs:
            value, source = theirs[name], " (model)"
        if name == "max_tokens" and not source:
            value = f"{value} in a completion, what the window leaves in a chat"
        if name == "top_k" and value in (0, -1):
            value = "off"
        shown = f"{value:g}" if isinstance(value, float) else value
        given.append(f"{name} {shown}{source}")
    return ", ".join(given)


def check_default_sampling(values: Mapping[str, Any]) -> None:
    """Refuse defaults from the command line that no request could carry."""
    unknown = sorted(values.keys() - set(_DEFAULTABLE))
    if unknown:
        raise invalid(unknown[0], f"{unknown[0]} has no default; known are {', '.join(_DEFAULTABLE)}.")
    make_params(dict(values), {})


def sampling_values(
    request: GenerationFields, defaults: Mapping[str, Any], settings: ApiSettings
) -> dict[str, Any]:
    """The keyword arguments of SamplingParams, all but max_tokens and logprobs."""
    _check_lists(request)
    values = {k: v for k, v in defaults.items() if k != "max_tokens"}
    for name in _PLAIN:
        value = getattr(request, name)
        if value is not None:
            values[name] = value
    values["n"], values["best_of"] = _choices(request, settings.max_choices)
    values["stop"] = _stop_strings(request.stop, settings.max_stop_strings)
    if request.logit_bias:
        values["logit_bias"] = _logit_bias(request.logit_bias)
    return values


def make_params(values: dict[str, Any], renamed: Mapping[str, str]) -> SamplingParams:
    """SamplingParams, its complaints under the names that the client used (`renamed`: ours to theirs)."""
    from octavo import SamplingParams
    from octavo.errors import OctavoError

    try:
        params = SamplingParams(**values)
    except OctavoError as e:
        ours = e.param
        theirs = renamed.get(ours, ours)
        message = str(e) if theirs == ours else str(e).replace(ours, theirs, 1)
        raise from_engine(e.code, theirs, message) from None
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("effective sampling values: %r", params)
    return params


def _check_lists(request: GenerationFields) -> None:
    for name, limit in MAX_ITEMS.items():
        items = getattr(request, name)
        if items is not None and len(items) > limit:
            raise invalid(name, f"{name}: {len(items)} items, at most {limit} are possible.")


def _choices(request: GenerationFields, limit: int) -> tuple[int, int | None]:
    """n and best_of."""
    for name in ("n", "best_of"):
        value = getattr(request, name)
        if value is not None and not 1 <= value <= limit:
            raise invalid(name, f"{name} must be from 1 to {limit}, got {value}.")
    n = 1 if request.n is None else request.n
    if request.stream and request.best_of is not None and request.best_of > n:
        raise invalid("best_of", f"best_of above n ({n}) cannot be streamed: the best are known at the end.")
    return n, request.best_of


def _stop_strings(stop: str | list[str] | None, limit: int) -> list[str]:
    strings = [stop] if isinstance(stop, str) else list(stop or ())
    if len(strings) > limit:
        raise invalid("stop", f"stop: {len(strings)} strings, at most {limit} are possible.")
    if any(not s for s in strings):
        raise invalid("stop", "stop: an empty string would end every answer at once.")
    return strings


def _logit_bias(bias: Mapping[str, float]) -> dict[int, float]:
    result: dict[int, float] = {}
    for key, value in bias.items():
        if not _TOKEN_ID.fullmatch(key):
            raise invalid("logit_bias", f"logit_bias: {quoted(key)} is not a token id.")
        result[int(key)] = value
    return result
