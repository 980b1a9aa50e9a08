"""An engine without a model: every stream gets its next token at once, for ever at full speed.

Streams, deltas and the loop's reader are the real ones; what stands in is the native engine below them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from octavo import _engine
from octavo.errors import OctavoError
from octavo.token_stream import MAX_BACKLOG, LoopReader, TokenStream
from octavo.tool_prompt import HERMES, CallForm
from octavo_gateway.api.engine import DecisionReport, ModelInfo

if TYPE_CHECKING:
    from octavo.loading import LoadedModel
    from octavo.sampling_params import SamplingParams
    from octavo.structured import CompiledGrammar, GrammarSpec

VOCAB = 49152
_TEXT, _TOKEN = " token", 1234
_DEFAULT_TOKENS = 16


class StubTokenizer:
    """A token per character of a prompt."""

    vocab_size = VOCAB
    longest_token_bytes = 4

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [ord(c) % VOCAB for c in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return _TEXT * len(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return _TEXT.encode()

    def control_token(self, text: str) -> int | None:
        return None

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        add_special_tokens: bool,
        template_kwargs: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] = (),
        call_form: CallForm = HERMES,
    ) -> list[int]:
        return self.encode("".join(f"{m['role']}{m['content']}" for m in messages), add_special_tokens=False)


class StubChannel:
    """Readable while a stream runs; each drain is one step that gives every stream a token."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.steps = 0
        self._left: dict[int, int] = {}
        self._deltas: dict[int, _engine.Delta] = {}  # what each stream gets in every step but its last
        self._aborted: list[_engine.Delta] = []
        self._readable = False

    def begin(self, request: int, prompt_tokens: int, tokens: int) -> None:
        self._left[request] = tokens
        self._deltas[request] = _engine.Delta(
            request, text=_TEXT, token_ids=[_TOKEN], prompt_tokens=prompt_tokens
        )
        if not self._readable:
            os.eventfd_write(self.fd, 1)
            self._readable = True

    def drain(self) -> list[_engine.Delta]:
        self.steps += 1
        out, self._aborted = self._aborted, []
        for request, left in list(self._left.items()):
            if left > 1:
                self._left[request] = left - 1
                out.append(self._deltas[request])
            else:
                out.append(self._end(request, text=_TEXT, token_ids=[_TOKEN], finish="length"))
        if not self._left and self._readable:
            os.eventfd_read(self.fd)
            self._readable = False
        return out

    def send_directly(self, request: int, fd: int, head: bytes, tail: bytes) -> bool:
        """Not possible: what is measured is the way through Python."""
        return False

    def take_back(self, request: int) -> float | None:
        return None

    def cancel(self, request: int) -> None:
        if request in self._left:
            self._aborted.append(self._end(request, finish="abort"))

    def _end(self, request: int, **last: Any) -> _engine.Delta:
        del self._left[request]
        return _engine.Delta(request, prompt_tokens=self._deltas.pop(request).prompt_tokens, **last)

    def close(self) -> None:
        os.close(self.fd)


class _StubModel:
    """As much of a loaded model as a loop's reader uses; it is its own native engine."""

    is_alive = True

    def __init__(self) -> None:
        self.channel = StubChannel()
        self._next = 1

    @property
    def engine(self) -> _StubModel:
        return self

    def open_channel(self) -> _engine.Channel:
        return cast(_engine.Channel, self.channel)

    def close_channel(self, channel: _engine.Channel) -> None:
        self.channel.close()

    def cancel(self, request: int) -> None:
        self.channel.cancel(request)

    def submit(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        channel: _engine.Channel,
        *,
        namespace: int = 0,
        priority: int = 0,
        tenant: int = 0,
        shared_tokens: int = 0,
    ) -> int:
        request, self._next = self._next, self._next + 1
        self.channel.begin(request, len(ids), params.max_tokens or _DEFAULT_TOKENS)
        return request


class StubEngine:
    """The gateway's engine; belongs to the loop that first submits."""

    def __init__(self) -> None:
        self._model = _StubModel()
        self._reader: LoopReader | None = None
        self.tokenizer = StubTokenizer()
        self.model = ModelInfo("stub", 1 << 20, summary="no model: every token comes at once")

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        namespace: int,
        priority: int,
        tenant: int = 0,
        shared_tokens: int = 0,
    ) -> TokenStream:
        if self._reader is None:
            import asyncio

            self._reader = LoopReader(cast("LoadedModel", self._model), asyncio.get_running_loop())
        return self._reader.submit(
            prompt, params, namespace=namespace, priority=priority, tenant=tenant, max_backlog=MAX_BACKLOG
        )

    def new_token_limit(self, prompt: int, sequences: int) -> int:
        return self.model.max_model_len - prompt

    async def compile(self, spec: GrammarSpec, tenant: int = 0) -> CompiledGrammar:
        raise OctavoError("the stub keeps no grammar", code="unsupported", param="structured_outputs")

    def stats(self) -> dict[str, Any]:
        running = 0 if self._reader is None else self._reader.num_streams
        return {"running": running, "waiting": 0, "last_step": 0.0, "steps": self._model.channel.steps}

    async def snapshot(self) -> dict[str, Any]:
        raise OctavoError("the stub has no cache", code="unsupported", param="model")

    async def audit(self) -> None:
        raise OctavoError("the stub has no cache", code="unsupported", param="model")

    def decisions(self) -> Sequence[Mapping[str, Any]]:
        raise OctavoError("the stub has no scheduler", code="unsupported", param="model")

    def scheduler_config(self) -> Mapping[str, Any]:
        raise OctavoError("the stub has no scheduler", code="unsupported", param="model")

    def report_decisions(self, fd: int, at: int, size: int) -> DecisionReport:
        raise OctavoError("the stub has no scheduler", code="unsupported", param="model")

    def shutdown(self) -> None:
        if self._reader is not None:
            self._reader.close()
