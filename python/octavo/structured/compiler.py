"""Compiles grammars on threads of its own, within bounds, and keeps what it compiled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from octavo import _engine
from octavo.errors import InvalidArgumentError, OctavoError
from octavo.structured.compile_queue import CompileQueue
from octavo.structured.spec import GrammarSpec
from octavo.structured.vocabulary import Vocabulary, make_vocabulary
from octavo.tokenizer import Tokenizer

_NICENESS = 10


@dataclass(frozen=True)
class GrammarLimits:
    """Bounds of what grammars may cost.

    Attributes:
        max_bytes: longest text of a grammar or schema.
        timeout: seconds that a request waits for its grammar.
        threads: compiled at once; those that take long are not counted.
        cache_size: grammars that are kept.
    """

    max_bytes: int = 256 * 1024
    timeout: float = 10.0
    threads: int = 2
    cache_size: int = 256


@dataclass(frozen=True)
class CompiledGrammar:
    """A grammar that requests of one model can carry (``SamplingParams.grammar``)."""

    spec: GrammarSpec
    native: _engine.Grammar


class GrammarCompiler:
    """The grammars of one model. Thread-safe.

    Equal grammars of a tenant are compiled once, also when they are asked for at the same time: what others have
    compiled shows in no time. When there are too many, the least recently used of the tenant goes that has most. A
    grammar that takes too long is given up by who waits for it, not by its thread: its own bounds end that.

    Args:
        tokenizer, vocab_size, end_tokens: of the model.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        end_tokens: Sequence[int],
        limits: GrammarLimits | None = None,
    ) -> None:
        self.limits = limits or GrammarLimits()
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._end_tokens = list(end_tokens)
        self._queue: CompileQueue[CompiledGrammar] = CompileQueue(self.limits.threads, self._begin)
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._vocabulary: Vocabulary | None = None
        self._known: dict[int, OrderedDict[GrammarSpec, Future[CompiledGrammar]]] = {}  # by tenant

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens, made with the first grammar."""
        with self._making:
            if self._vocabulary is None:
                self._vocabulary = make_vocabulary(self._tokenizer, self._vocab_size, self._end_tokens)
            return self._vocabulary

    def compile(self, spec: GrammarSpec, tenant: int = 0) -> CompiledGrammar:
        """Compile, or find what was compiled, waiting for it on this thread.

        Raises:
            InvalidArgumentError: what is wrong with the grammar, or that it takes too long.
        """
        try:
            return self._start(spec, tenant).result(self.limits.timeout)
        except FutureTimeoutError:
            raise self._too_long() from None

    async def compile_soon(self, spec: GrammarSpec, tenant: int = 0) -> CompiledGrammar:
        """``compile`` without holding up the event loop."""
        future = asyncio.wrap_future(self._start(spec, tenant))
        try:
            # Shielded: others may wait for the same grammar.
            return await asyncio.wait_for(asyncio.shield(future), self.limits.timeout)
        except (asyncio.TimeoutError, FutureTimeoutError):
            future.add_done_callback(_look_away)
            raise self._too_long() from None

    def close(self) -> None:
        """Compile no more."""
        self._queue.close()

    def _start(self, spec: GrammarSpec, tenant: int) -> Future[CompiledGrammar]:
        size = len(spec.text.encode("utf-8", "surrogatepass"))
        if size > self.limits.max_bytes:
            raise InvalidArgumentError(
                f"the grammar has {size} bytes, at most {self.limits.max_bytes} are possible",
                param="structured_outputs",
            )
        with self._lock:
            known = self._known.setdefault(tenant, OrderedDict())
            future = known.get(spec)
            if future is None or future.cancelled():
                future = known[spec] = self._queue.submit(tenant, lambda: self._compile(spec))
            known.move_to_end(spec)
            if sum(map(len, self._known.values())) > self.limits.cache_size:
                self._forget_one()
            return future

    def _forget_one(self) -> None:
        tenant, most = max(self._known.items(), key=lambda item: len(item[1]))
        most.popitem(last=False)
        if not most:
            del self._known[tenant]

    def _compile(self, spec: GrammarSpec) -> CompiledGrammar:
        try:
            native = self.vocabulary.compile(spec.kind, spec.text, forcing=spec.forcing)
        except OctavoError as error:
            raise InvalidArgumentError(_reason(str(error)), param="structured_outputs") from None
        if spec.start_after:
            table = self._tokenizer.token_table(self._vocab_size)
            native = _engine.grammar_after(native, spec.start_after.encode(), table, self._end_tokens)
        return CompiledGrammar(spec, native)

    def _begin(self) -> None:
        """A thread's start: the vocabulary, then behind the engine's threads.

        What needs the interpreter's lock for long is done before: a thread that waits for its turn with the lock
        held would hold up the event loop.
        """
        with contextlib.suppress(OctavoError):  # `_compile` raises it again
            _ = self.vocabulary
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)

    def _too_long(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the grammar did not compile within {self.limits.timeout:g} s: simplify it",
            param="structured_outputs",
        )


def _look_away(future: asyncio.Future[CompiledGrammar]) -> None:
    if not future.cancelled():
        future.exception()


def _reason(told: str) -> str:
    """The library's reason in the words of a schema's author."""
    told = told.strip()
    if told.startswith("Unimplemented keys:"):
        return f"the schema has keywords that are not supported: {told.partition(':')[2].strip(' []')}"
    if told.startswith("oneOf constraints are not supported"):
        return "oneOf is supported only where its options evidently exclude each other: use anyOf"
    if told.startswith("Unknown format:"):
        return f"format is not supported with the value {told.partition(':')[2].strip()!r}"
    return told[:500]
