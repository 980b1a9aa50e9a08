"""What every route of one loaded model shares, and the way from ids to a running generation."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from octavo_gateway.api.cache_names import cache_namespace
from octavo_gateway.api.caller import Caller
from octavo_gateway.api.deadlines import Deadlines
from octavo_gateway.api.engine import Engine
from octavo_gateway.api.generation import Generation
from octavo_gateway.api.metrics import Metrics, RequestObserver
from octavo_gateway.api.parsers.formats import reasoning_format, tool_format
from octavo_gateway.api.sampling import (
    check_default_sampling,
    default_sampling,
    describe_defaults,
)
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.api.shared_prompts import SharedPrompts
from octavo_gateway.api.structure import Structure
from octavo_gateway.api.text import PromptLength, TextWorkers
from octavo_gateway.api.waiting import WaitingTokens
from octavo_gateway.protocol.common import GenerationFields
from octavo_gateway.protocol.errors import (
    ApiError,
    context_length_exceeded,
    from_engine,
    invalid,
    model_not_found,
)

if TYPE_CHECKING:
    from octavo import SamplingParams

_log = logging.getLogger("octavo.gateway.sampling")


class ApiContext:
    """One loaded model behind the API."""

    def __init__(self, engine: Engine, settings: ApiSettings, metrics: Metrics, workers: TextWorkers) -> None:
        self.engine = engine
        self.settings = settings
        self.metrics = metrics
        self.workers = workers
        self.waiting = WaitingTokens(settings.max_queue_tokens)
        self.shared_prompts = SharedPrompts()
        self.defaults = default_sampling(engine.model, settings)
        check_default_sampling(self.defaults)
        _log.info(
            "a request that says nothing else samples with %s", describe_defaults(engine.model, settings)
        )
        self.length = PromptLength(
            engine.model.max_model_len, engine.tokenizer.longest_token_bytes, settings.length_shortcut
        )
        self.tool_format = tool_format(settings.tool_parser, engine.model.chat_template)
        self.reasoning_format = reasoning_format(settings.reasoning_parser, engine.model.chat_template)
        self.created = int(time.time())
        self.fingerprint = _fingerprint(engine)

    @property
    def model_name(self) -> str:
        return self.settings.served_names[0]

    def check_model(self, name: str | None) -> None:
        """A request without a model gets the one there is; a wrong name is a 404."""
        known = self.settings
        if name is not None and name not in known.served_names and name not in known.other_names:
            raise model_not_found(name, known.served_names)

    def shorten_prompt(self, ids: list[int], request: GenerationFields, param: str) -> list[int]:
        """`ids`, cut to truncate_prompt_tokens where that was asked for, within the window."""
        keep = request.truncate_prompt_tokens
        if keep is not None:
            if keep < 1 and keep != -1:
                raise invalid(
                    "truncate_prompt_tokens",
                    f"truncate_prompt_tokens must be at least 1, or -1 for what the window takes, got {keep}.",
                )
            ids = ids[-(self.length.max_model_len - 1 if keep == -1 else keep) :]
        if not ids:
            raise invalid(param, f"{param} has no tokens; at least one is needed.")
        self.length.check_tokens(len(ids), param)
        return ids

    def check_budget(self, prompt_tokens: int, sequences: int, max_tokens: int | None, param: str) -> None:
        """In strict mode more tokens than window and cache leave are refused; otherwise the engine clamps."""
        window = self.length.max_model_len
        if not self.settings.strict_max_tokens or max_tokens is None:
            return
        if max_tokens > window - prompt_tokens:
            raise context_length_exceeded(
                window, f"the input has {prompt_tokens} tokens and {param} asks for {max_tokens} more", param
            )
        room = self.engine.new_token_limit(prompt_tokens, sequences)
        if max_tokens > room:
            info = self.engine.model.engine_info
            raise context_length_exceeded(
                window,
                f"the cache holds {info['num_blocks'] * info['block_size']} tokens, which leaves each of {sequences} "
                f"sequences {room} behind an input of {prompt_tokens}, and {param} asks for {max_tokens}",
                param,
            )

    async def constrained(
        self, params: SamplingParams, structure: Structure | None, caller: Caller
    ) -> SamplingParams:
        """`params` held to the form that was asked for, compiled off the event loop."""
        from octavo.errors import OctavoError

        if structure is None:
            return params
        try:
            spec = await self.workers.call(structure.spec)
            return params.with_grammar(await self.engine.compile(spec, cache_namespace(caller.tenant, None)))
        except OctavoError as e:
            raise structure.error(e) from None

    def submit(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        request: GenerationFields,
        *,
        caller: Caller,
        prompt_param: str,
        renamed: Mapping[str, str],
    ) -> Generation:
        """Hand the request to the engine, or raise what its refusal means to a client."""
        from octavo.errors import OctavoError

        namespace = cache_namespace(caller.tenant, request.cache_salt)
        tenant = cache_namespace(caller.tenant, None)
        # Who salts wants to share with nobody.
        shared = 0 if request.cache_salt else self.shared_prompts.common_with(ids)
        priority = request.priority or 0
        if not -(2**31) <= priority < 2**31:
            raise invalid("priority", f"priority must be from {-(2**31)} to {2**31 - 1}, got {priority}.")
        deadlines = Deadlines.of(request, caller, self.settings)
        try:
            stream = self.engine.submit(
                ids, params, namespace=namespace, priority=priority, tenant=tenant, shared_tokens=shared
            )
        except OctavoError as e:
            raise self._refusal(
                e.code, e.param, str(e), getattr(e, "limit", 0), prompt_param, renamed
            ) from None
        observer = RequestObserver(self.metrics, caller.arrival)
        return Generation(stream, observer, len(ids), params.n, self.waiting, deadlines)

    def _refusal(
        self, code: str, param: str, message: str, limit: int, prompt_param: str, renamed: Mapping[str, str]
    ) -> ApiError:
        if code in ("context_length_exceeded", "capacity"):
            return context_length_exceeded(limit or self.length.max_model_len, message, prompt_param)
        theirs = prompt_param if param == "prompt" else renamed.get(param, param)
        return from_engine(code, theirs, message)


def _fingerprint(engine: Engine) -> str:
    """Changes when the same request might be answered with other bits: the build, the model, the formats."""
    from octavo import __version__

    what = (__version__, engine.model.root, sorted((k, str(v)) for k, v in engine.model.engine_info.items()))
    return "fp_" + hashlib.blake2b(repr(what).encode(), digest_size=6).hexdigest()
