"""octavo's AsyncEngine, tokenizer and chat template behind the API's protocol."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.async_engine import AsyncEngine
from octavo.engine_args import EngineArgs
from octavo.errors import InvalidArgumentError
from octavo.loading import LoadedModel, load
from octavo.structured.vocabulary import problem
from octavo.tokenizer import Tokenizer
from octavo.tool_prompt import HERMES, CallForm, fitted
from octavo_gateway.api.engine import DecisionReport, ModelInfo

if TYPE_CHECKING:
    from octavo.chat import ChatTemplate
    from octavo.sampling_params import SamplingParams
    from octavo.structured import CompiledGrammar, GrammarSpec
    from octavo.token_stream import TokenStream

_log = logging.getLogger("octavo.gateway")


class ServedTokenizer:
    """octavo's tokenizer and chat template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._vocab_size = vocab_size
        _ = tokenizer.longest_token_bytes  # worked out now rather than for the first request

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def longest_token_bytes(self) -> int:
        return self._tokenizer.longest_token_bytes

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokenizer.token_bytes(token_id)

    def control_token(self, text: str) -> int | None:
        ids = self._tokenizer.encode(text, False)
        return ids[0] if len(ids) == 1 and ids[0] in self._tokenizer.special_ids else None

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
        if self._template is None:
            raise InvalidArgumentError(
                "this model has no chat template: use /v1/completions, or start the server with --chat-template",
                param="messages",
            )
        template = self._template
        messages, tools = fitted(template, messages, tools, call_form)
        try:
            return template.encode(
                messages,
                tools=tools or None,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                add_special_tokens=add_special_tokens,
                **template_kwargs,
            )
        except TypeError as e:
            raise InvalidArgumentError(f"chat_template_kwargs: {e}", param="chat_template_kwargs") from None


class ServedEngine:
    """A loaded model that takes requests. Loaded in any thread, then used from one event loop.

    Args:
        trace: the engine notes where the time of its steps goes.
    """

    def __init__(self, args: EngineArgs, *, trace: bool = False) -> None:
        loaded = load(args, trace=trace)
        self._engine = AsyncEngine(loaded)
        if reason := problem():
            _log.warning("structured output is slow or not possible: %s", reason)
        tokenizer = loaded.require_tokenizer("requests")
        has_template = args.chat_template is not None or tokenizer.chat_template is not None
        template = loaded.chat_template if has_template else None
        self._tokenizer = ServedTokenizer(tokenizer, template, loaded.vocab_size)
        self._model = ModelInfo(
            root=loaded.name,
            max_model_len=loaded.max_model_len,
            generation_config=loaded.generation_config,
            chat_template="" if template is None else template.source,
            summary=_summary(loaded),
            engine_info={**loaded.engine.info(), "enable_prefix_caching": args.enable_prefix_caching},
        )

    @property
    def model(self) -> ModelInfo:
        return self._model

    @property
    def tokenizer(self) -> ServedTokenizer:
        return self._tokenizer

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
        return self._engine.submit(
            prompt, params, namespace=namespace, priority=priority, tenant=tenant, shared_tokens=shared_tokens
        )

    def new_token_limit(self, prompt: int, sequences: int) -> int:
        return self._engine.model.engine.new_token_limit(prompt, sequences)

    async def compile(self, spec: GrammarSpec, tenant: int = 0) -> CompiledGrammar:
        return await self._engine.model.grammars.compile_soon(spec, tenant)

    def stats(self) -> dict[str, Any]:
        return self._engine.stats()

    async def snapshot(self) -> dict[str, Any]:
        return await self._engine.snapshot()

    async def audit(self) -> None:
        await self._engine.audit()

    def decisions(self) -> list[dict[str, Any]]:
        return self._engine.decisions()

    def scheduler_config(self) -> dict[str, Any]:
        return self._engine.model.engine.scheduler_config()

    def report_decisions(self, fd: int, at: int, size: int) -> DecisionReport:
        return self._engine.model.engine.report_decisions(fd, at, size)

    def shutdown(self) -> None:
        self._engine.shutdown()


def _summary(loaded: LoadedModel) -> str:
    engine = loaded.engine.info()
    formats = ", ".join(loaded.info.formats)
    tokens = engine["num_blocks"] * engine["block_size"]
    size = f"{engine['kv_bytes'] / 2**30:.2f} GiB of {engine['kv_dtype']}"
    threads = f"{engine['threads']} thread{'' if engine['threads'] == 1 else 's'}"
    return (
        f"{loaded.name}: {loaded.info.container} ({formats}), {engine['backend']} {engine['isa']} with {threads}, "
        f"cache of {tokens:,} tokens ({size})"
    )
