"""An engine that plays a script, for tests of the protocol: it has the engine's contract and no model."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo import SamplingParams
from octavo.errors import InvalidArgumentError, OctavoError, RefusedError
from octavo.structured import CompiledGrammar, GrammarSpec
from octavo.tool_prompt import HERMES, CallForm
from octavo_gateway.api.engine import ModelInfo

VOCAB = 300
EOS = 256


@dataclass
class Delta:
    choice: int = 0
    token_ids: Sequence[int] = ()
    text: str = ""
    logprobs: list[Any] | None = None
    prompt_logprobs: list[Any] | None = None
    finish: str | None = None
    stop_reason: int | str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    error: tuple[str, str, str] | None = None
    sent: bool = False


@dataclass
class Script:
    """What the engine says: (token ids, text) per step, then how it ends."""

    steps: Sequence[tuple[Sequence[int], str]] = ()
    finish: str = "stop"
    stop_reason: int | str | None = None
    error: tuple[str, str, str] | None = None
    cached_tokens: int = 0
    step_seconds: float = 0.0
    first_step_seconds: float = 0.0


def spoken(text: str) -> list[tuple[list[int], str]]:
    """One step per character, its bytes as tokens."""
    return [(list(c.encode()), c) for c in text]


class ByteTokenizer:
    """A token is a byte; a conversation is `<role>content` per message."""

    vocab_size = VOCAB
    longest_token_bytes = 1

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i for i in token_ids if i < 256).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes((token_id,)) if token_id < 256 else b""

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
        if template_kwargs.get("fail"):
            raise InvalidArgumentError("the chat template failed: it was asked to", param="messages")
        text = f"<tools>{[t['function']['name'] for t in tools]}" if tools else ""
        text += "".join(f"<{m['role']}>{m.get('content') or ''}" for m in messages)
        return self.encode(text + ("<assistant>" if add_generation_prompt else ""), add_special_tokens=False)


class ScriptedStream:
    def __init__(self, engine: ScriptedEngine, prompt: Sequence[int], params: SamplingParams, script: Script):
        self.engine = engine
        self.prompt = prompt
        self.params = params
        self.script = script
        self.id = len(engine.submitted) + 1
        self.namespace = 0
        self.tenant = 0
        self.shared_tokens = 0
        self.cancelled = False
        self._deltas: deque[Delta] = deque()
        self._wake = asyncio.Event()
        self._started = False
        self._task = asyncio.get_running_loop().create_task(self._play())

    @property
    def backlog(self) -> int:
        return len(self._deltas)

    def send_directly(self, fd: int, head: bytes, tail: bytes, write_rest: Callable[[bytes], None]) -> bool:
        return False

    def take_back(self) -> float | None:
        return None

    async def next(self) -> Sequence[Delta]:
        await self._wake.wait()
        self._wake.clear()
        deltas, self._deltas = list(self._deltas), deque()
        return deltas

    def cancel(self) -> None:
        if self._task.done() or self.cancelled:
            return
        self.cancelled = True
        self._task.cancel()
        if not self._started:  # a task that has not begun ends without a word
            self.engine.waiting -= 1
            for choice in range(self.params.n):
                self._tell(
                    Delta(choice, finish="abort", prompt_tokens=len(self.prompt), last_token=time.monotonic())
                )

    def _tell(self, delta: Delta) -> None:
        self._deltas.append(delta)
        self._wake.set()

    async def _play(self) -> None:
        engine, script = self.engine, self.script
        self._started = True
        times = {"scheduled": 0.0, "first_token": 0.0}
        common = {"prompt_tokens": len(self.prompt), "cached_tokens": script.cached_tokens}
        try:
            async with engine.places:
                engine.waiting -= 1
                engine.running += 1
                try:
                    times["scheduled"] = time.monotonic()
                    await self._steps(times, common)
                finally:
                    engine.running -= 1
        except asyncio.CancelledError:
            if not times["scheduled"]:
                engine.waiting -= 1
            for choice in range(self.params.n):
                self._tell(Delta(choice, finish="abort", **common, **times, last_token=time.monotonic()))

    async def _steps(self, times: dict[str, float], common: dict[str, int]) -> None:
        script, params = self.script, self.params
        await asyncio.sleep(script.first_step_seconds)
        budget = self.engine.model.max_model_len - len(self.prompt)
        budget = min(budget, params.max_tokens if params.max_tokens is not None else budget)
        prompt_logprobs: list[Any] | None = None
        if params.prompt_logprobs is not None:
            prompt_logprobs = [None, *((t, -1.0, 1, [(t, -1.0, 1), (EOS, -2.0, 2)]) for t in self.prompt[1:])]
        for tokens, text in script.steps:
            self.engine.last_step = time.monotonic()
            now = time.monotonic()
            times["first_token"] = times["first_token"] or now
            take = list(tokens)[:budget]
            budget -= len(take)
            logprobs = None
            if params.logprobs is not None:
                logprobs = [(t, -0.5, 1, [(t, -0.5, 1), (EOS, float("-inf"), 2)]) for t in take]
            finish = "length" if budget == 0 else None
            for choice in range(params.n):
                self._tell(
                    Delta(
                        choice=choice,
                        token_ids=take,
                        text=text,
                        logprobs=logprobs,
                        prompt_logprobs=prompt_logprobs,
                        finish=finish,
                        last_token=now,
                        **common,
                        **times,
                    )
                )
                prompt_logprobs = None
            if finish:
                return
            await asyncio.sleep(script.step_seconds)
        now = time.monotonic()
        finish = "error" if script.error else script.finish
        for choice in range(params.n):
            self._tell(
                Delta(
                    choice=choice,
                    finish=finish,
                    stop_reason=script.stop_reason,
                    error=script.error,
                    last_token=now,
                    **common,
                    **times,
                )
            )


@dataclass
class ScriptedReport:
    engine: ScriptedEngine
    fd: int
    at: int
    size: int

    def write(self) -> None:
        lines = "".join(json.dumps(d) + "\n" for d in self.engine.decisions()).encode()
        os.pwrite(self.fd, (b"\n" + lines).rjust(self.size), self.at)


@dataclass
class ScriptedEngine:
    """Plays `script` (or what `script` makes of a prompt) for each request, `max_num_seqs` at a time."""

    script: Script | Callable[[Sequence[int]], Script] = field(default_factory=Script)
    model: ModelInfo = field(
        default_factory=lambda: ModelInfo("scripted", 256, {}, {"block_size": 16, "num_blocks": 64})
    )
    max_num_seqs: int = 256
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    refuse: RefusedError | None = None
    audit_error: OctavoError | None = None

    def __post_init__(self) -> None:
        self.places = asyncio.Semaphore(self.max_num_seqs)
        self.running = 0
        self.waiting = 0
        self.last_step = 0.0
        self.device_lost = ""
        self.submitted: list[ScriptedStream] = []
        self.is_shut_down = False

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        namespace: int,
        priority: int,
        tenant: int = 0,
        shared_tokens: int = 0,
    ) -> ScriptedStream:
        if self.refuse is not None:
            raise self.refuse
        script = self.script(prompt) if callable(self.script) else self.script
        stream = ScriptedStream(self, prompt, params, script)
        stream.namespace = namespace
        stream.tenant = tenant
        stream.shared_tokens = shared_tokens
        self.submitted.append(stream)
        self.waiting += 1
        return stream

    def new_token_limit(self, prompt: int, sequences: int) -> int:
        """Of a cache that holds nothing in common."""
        info = self.model.engine_info
        return int(info["num_blocks"] * info["block_size"]) // sequences - prompt

    async def compile(self, spec: GrammarSpec, tenant: int = 0) -> CompiledGrammar:
        """A script says what it says."""
        return CompiledGrammar(spec, None)  # type: ignore[arg-type]

    def stats(self) -> dict[str, Any]:
        live = self.running
        return {
            "running": self.running,
            "waiting": self.waiting,
            "last_step": self.last_step,
            "device_lost": self.device_lost,
            "total_blocks": 64,
            "live_blocks": live,
            "cached_blocks": 4,
            "free_blocks": 60 - live,
            "table_entries": 2 * live,
            "queue_waits_for": "sequence_limit" if self.waiting else "next_step",
            "prompt_tokens": 7,
            "generation_tokens": 8,
            "prefix_queries": 9,
            "prefix_hits": 5,
            "preemptions": 1,
            "steps": 3,
            "step_tokens": 15,
            "step_sizes": [0, 0, 1, 2, 0],
        }

    async def snapshot(self) -> dict[str, Any]:
        live = self.running
        counts = {
            "num_blocks": 64,
            "window": 0,
            "free_blocks": 60 - live,
            "cached_blocks": 4,
            "live_blocks": live,
        }
        tokens = {"table_entries": 2 * live, "table_tokens": 20 * live, "live_tokens": 10 * live}
        runs = [(2, live), (0, 60 - live), (-1, 4)]
        sizes = {"prompt_tokens": 19, "sequences": 1, "tenant": 0, "priority": 0}
        runs_on = {"preempted": False, "reason": "on_time"}
        waits = {"preempted": False, "leader": None, "waited": 0.5}
        return {
            "time": time.monotonic(),
            "block_size": 16,
            "groups": [{**counts, **tokens, "map": [(h, n) for h, n in runs if n]}],
            "running": [
                {"id": i, **sizes, "tokens": 20, "computed": 19, "blocks": 2, **runs_on}
                for i in range(1, live + 1)
            ],
            "waiting": [
                {"id": 1000 + i, **sizes, **waits, "reason": "behind" if i else "sequence_limit"}
                for i in range(self.waiting)
            ],
            "stats": self.stats(),
        }

    async def audit(self) -> None:
        if self.audit_error is not None:
            raise self.audit_error

    def decisions(self) -> list[dict[str, Any]]:
        """Of a scheduler that would have taken the requests so."""
        return [
            {
                "kind": "add",
                "step": stream.id,
                "request": stream.id,
                "prompt_tokens": len(stream.prompt),
                "max_new_tokens": 1,
                "priority": 0,
                "tenant": stream.tenant,
                "first_sequence": stream.id,
                "sequences": 1,
                "prompt_logits": False,
                "lockstep": True,
                "alone": stream.id == 1,
            }
            for stream in self.submitted
        ]

    def scheduler_config(self) -> dict[str, Any]:
        sizes = {"block_size": 16, "max_tokens_per_step": 512, "max_seqs": 256, "max_model_len": 256}
        rest = {"prefix_caching": True, "watermark": 0.01, "depth": 1, "max_seqs_per_tenant": 0}
        return {"groups": [(64, 0)], **sizes, **rest, "ageing_steps": 1024}

    def report_decisions(self, fd: int, at: int, size: int) -> ScriptedReport:
        return ScriptedReport(self, fd, at, size)

    def shutdown(self) -> None:
        self.is_shut_down = True
