"""``AsyncEngine``: the same engine for programs that run an event loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any
from weakref import WeakValueDictionary

from octavo.engine_args import EngineArgs
from octavo.errors import InvalidArgumentError
from octavo.fork_point import fork_point
from octavo.loading import LoadedModel, load
from octavo.models.hub import DEFAULT_MODEL
from octavo.output_builder import OutputBuilder
from octavo.outputs import RequestOutput
from octavo.prompts import Prompt, no_adapter, prepare
from octavo.running_request import RunningRequest
from octavo.sampling_params import SamplingParams
from octavo.structured import StructuredOutputsParams
from octavo.token_stream import MAX_BACKLOG, LoopReader, TokenStream
from octavo.tokenizer import Tokenizer

# Tokenizing less than this many characters is quicker than the way to another thread and back.
_INLINE_CHARACTERS = 4096


class AsyncEngine:
    """A model for ``async for``: many requests at once, each a stream of its own.

    All requests of a loop share one file descriptor; a wake-up of the loop takes in what every one of them has.

    Args:
        model, kwargs: as for ``octavo.LLM``; or a ``LoadedModel``, which is then shared.
    """

    def __init__(self, model: Any = DEFAULT_MODEL, **kwargs: Any) -> None:
        if isinstance(model, LoadedModel):
            if kwargs:
                raise InvalidArgumentError(
                    f"{next(iter(kwargs))} has no effect on a loaded model", param="model"
                )
            self.model = model
        else:
            self.model = load(EngineArgs.from_kwargs({"model": model, **kwargs}))
        self._readers: dict[int, LoopReader] = {}
        self._attaching = threading.Lock()  # loops may run in threads of their own
        self._requests: WeakValueDictionary[str, RunningRequest] = WeakValueDictionary()
        self._counter = itertools.count()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.model.require_tokenizer("text")

    def submit(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        *,
        namespace: int = 0,
        priority: int = 0,
        tenant: int = 0,
        shared_tokens: int = 0,
        max_backlog: int = MAX_BACKLOG,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> TokenStream:
        """Hand token ids to the engine and get the stream of its deltas: the way with the least overhead.

        Args:
            ids: the prompt, ids within the vocabulary.
            namespace: equal prompts share their cache only within one namespace.
            priority: smaller runs first, among the requests of one tenant.
            tenant: tenants share the engine's time fairly.
            shared_tokens: the full cache blocks of so many leading tokens are shared with all namespaces.
            max_backlog: deltas that may wait to be read; a reader that falls further behind has its request aborted.
            loop: where the stream is read; the running loop by default. From another thread it must be given, and the
                engine must have been used on it before (``attach``).

        Raises:
            RefusedError: the request can never be served, with the numbers.
        """
        reader = self.attach() if loop is None else self._readers.get(id(loop))
        if reader is None or reader.loop is not (loop or reader.loop):
            raise InvalidArgumentError("loop is not attached: call attach() on it first", param="loop")
        return reader.submit(
            ids,
            params,
            namespace=namespace,
            priority=priority,
            tenant=tenant,
            shared_tokens=shared_tokens,
            max_backlog=max_backlog,
        )

    async def with_grammar(self, params: SamplingParams) -> SamplingParams:
        """``params`` with what ``structured_outputs`` asks for compiled, off the event loop.

        ``submit`` waits for the compiler instead where this was not done before.
        """
        if params.structured_outputs is None:
            return params
        structure = StructuredOutputsParams.of(params.structured_outputs)
        spec = await asyncio.to_thread(structure.spec)
        return params.with_grammar(await self.model.grammars.compile_soon(spec))

    def attach(self) -> LoopReader:
        """Make the running event loop ready to read streams; ``submit`` does it by itself."""
        loop = asyncio.get_running_loop()
        reader = self._readers.get(id(loop))
        if reader is None or reader.loop is not loop:
            self.model.check_alive()
            with self._attaching:
                self._forget_closed_loops()
                reader = self._readers[id(loop)] = LoopReader(self.model, loop)
        return reader

    async def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        tenant: int = 0,
        lora_request: None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Continue one prompt, yielding as it grows.

        Leaving the loop, closing or dropping the generator, cancelling the task or closing the event loop aborts the
        request.

        Args:
            prompt: a string, a list of token ids, or a map with ``"prompt"`` or ``"prompt_token_ids"``.
            sampling_params: its ``output_kind`` decides what is yielded: all so far (CUMULATIVE, the default), what is
                new (DELTA; a choice that has ended is not in later items), or one item at the end (FINAL_ONLY).
            request_id: a name to ``abort`` it by; unique among the requests that run.
            priority: smaller runs first, among the requests of one tenant.
            tenant: tenants share the engine's time fairly.
            lora_request: only None; adapters are not supported.

        Raises:
            InvalidArgumentError, RefusedError: it cannot be served.
            OctavoError: it failed in the engine.
        """
        no_adapter(lora_request)
        params = sampling_params if sampling_params is not None else self.model.default_sampling_params()
        with self._named(request_id) as running:
            ready = (await self._prepare(prompt)).truncated(params)
            params = await self.with_grammar(params)
            stream = self.submit(ready.ids, params, priority=priority, tenant=tenant)
            builder = OutputBuilder(self.model, running.name, ready.text, ready.ids, params, stream.id)
            async with aclosing(running.start(stream, builder, params.output_kind)) as outputs:
                async for output in outputs:
                    yield output

    def fork(
        self,
        request: RequestOutput | str,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        choice: int = 0,
        position: int | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Continue a request a second time, while it runs or when it has ended; see ``LLM.fork``.

        It starts at once. What was computed is shared: full blocks of the cache are neither computed nor copied again.

        Args:
            request: an output that ``generate`` or ``fork`` yielded, or the id of a request that runs.
            sampling_params: None is those of the request.
            request_id: a name to ``abort`` the fork by.
            choice: which of its completions.
            position: how many tokens are kept, prompt included; None is what has been yielded or taken in so far.

        Returns:
            A generator as ``generate`` gives; the prompt of its outputs is what was kept.

        Raises:
            InvalidArgumentError: the position or choice is not there, or no such request runs. Iterating raises it
                where the engine has forgotten the request.
            RefusedError: there is no room behind the position, with the numbers.
        """
        if isinstance(request, str):
            running = self._requests.get(request)
            if running is None or running.output is None:
                raise InvalidArgumentError(
                    f"no request runs under the id {request!r}: give its output", param="request"
                )
            request = running.output
        point = fork_point(request, sampling_params, choice, position)
        fork = self._named(request_id)
        try:
            stream = self.attach().fork(point, max_backlog=MAX_BACKLOG)
        except BaseException:
            fork.end()
            raise
        builder = OutputBuilder(self.model, fork.name, None, point.ids, point.params, stream.id)
        return fork.start(stream, builder, point.params.output_kind)

    async def abort(self, request_id: str) -> None:
        """End a request early; its generator yields what there is, with finish_reason "abort".

        Ids that nobody runs are ignored.
        """
        if running := self._requests.get(request_id):
            running.abort()

    def stats(self) -> dict[str, Any]:
        """Counters and gauges of the engine, as of its last step."""
        self.model.check_alive()
        return dict(self.model.engine.stats())

    async def snapshot(self) -> dict[str, Any]:
        """What the cache holds, block by block, and why each waiting request waits.

        It is taken between two steps, so it comes after the one under way.
        """
        self.model.check_alive()
        return dict(await asyncio.to_thread(self.model.engine.snapshot))

    def decisions(self) -> list[dict[str, Any]]:
        """What the scheduler was told and decided last, oldest first; no token of a prompt is in it.

        It waits for no step, so it also tells what an engine did that hangs.
        """
        return list(self.model.engine.decisions())

    async def audit(self) -> None:
        """Check, between two steps, that every block of the cache is accounted for; raises where one is not."""
        self.model.check_alive()
        await asyncio.to_thread(self.model.engine.audit)

    def shutdown(self) -> None:
        """Abort what runs and stop the engine. To be called on the loop's thread, or when no loop runs."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self.model.shutdown()

    def _named(self, request_id: str | None) -> RunningRequest:
        name = request_id if request_id is not None else f"octavo-{next(self._counter)}"
        return RunningRequest(self._requests, name)

    async def _prepare(self, prompt: Any) -> Prompt:
        text = prompt.get("prompt") if isinstance(prompt, dict) else prompt
        if isinstance(text, str) and len(text) > _INLINE_CHARACTERS:
            return (await asyncio.to_thread(prepare, self.model, [prompt]))[0]
        return prepare(self.model, [prompt])[0]

    def _forget_closed_loops(self) -> None:
        for key, reader in list(self._readers.items()):
            if reader.loop.is_closed():
                del self._readers[key]
