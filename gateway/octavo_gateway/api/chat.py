"""POST /v1/chat/completions: checks, prompt, and the two forms of the answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from octavo_gateway.api.caller import Caller
from octavo_gateway.api.chat_chunks import ChatChunks
from octavo_gateway.api.chat_form import ChatForm
from octavo_gateway.api.context import ApiContext
from octavo_gateway.api.deadlines import Deadlines
from octavo_gateway.api.generation import Generation
from octavo_gateway.api.ids import new_id
from octavo_gateway.api.messages import echoed_text, plain_messages, text_bytes, text_length
from octavo_gateway.api.parsers.answer_parser import ParserSpec
from octavo_gateway.api.parsers.formats import constrained_format
from octavo_gateway.api.plain_text import PLACE, PlainText
from octavo_gateway.api.prompt_logprobs import checked_prompt_logprobs
from octavo_gateway.api.reasoning import effort_variables
from octavo_gateway.api.sampling import make_params, sampling_values
from octavo_gateway.api.sse import DONE, error_event
from octavo_gateway.api.structure import asked_structure
from octavo_gateway.api.template_variables import template_variables
from octavo_gateway.api.tool_grammar import Thoughts, answer_structure
from octavo_gateway.api.tools import ToolUse, tool_use
from octavo_gateway.api.whole_choice import WholeChoice
from octavo_gateway.protocol.chat import ChatCompletion, ChatCompletionRequest
from octavo_gateway.protocol.common import Usage
from octavo_gateway.protocol.errors import ApiError, invalid

_TAIL = 16  # tokens at a prompt's end that are looked at for a tag


class ChatAnswer:
    """A chat completion under way."""

    def __init__(self, context: ApiContext, generation: Generation, form: ChatForm) -> None:
        self._context = context
        self._generation = generation
        self._form = form
        self._id = new_id("chatcmpl")
        self._created = int(time.time())
        self._chunks = ChatChunks(self._id, self._created, context.model_name, context.fingerprint, form)

    @property
    def generations(self) -> Sequence[Generation]:
        return (self._generation,)

    @property
    def backlog(self) -> int:
        return self._generation.backlog

    def plain_text(self) -> PlainText | None:
        """The stream's further events, where they differ in their text alone."""
        event = self._chunks.text_event(PLACE) if self._generation.choices == 1 else None
        return None if event is None else PlainText.of_event(self._generation, event)

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events up to and with [DONE]; a fault becomes an event too."""
        chunks = self._chunks

        def usage() -> Usage:
            self._generation.reasoning_tokens = chunks.reasoning_tokens
            return self._generation.usage

        try:
            async for deltas in self._generation.batches():
                events = chunks.encode(deltas, usage if self._form.running_usage else None)
                if events:
                    yield events
        except ApiError as e:
            yield error_event(e)
            return
        last = chunks.usage(usage()) if self._form.include_usage else b""
        yield last + DONE

    async def whole(self) -> bytes:
        """The whole answer as JSON."""
        form = self._form
        choices = [WholeChoice(i, form) for i in range(self._generation.choices)]
        scores = None
        async for deltas in self._generation.batches():
            scores = form.prompt_logprobs(deltas) if scores is None else scores
            for delta in deltas:
                choices[delta.choice].add(delta)
        if form.counts_reasoning:
            self._generation.reasoning_tokens = sum(choice.reasoning_tokens for choice in choices)
        return msgspec.json.encode(
            ChatCompletion(
                id=self._id,
                created=self._created,
                model=self._context.model_name,
                choices=[choice.result() for choice in choices],
                usage=self._generation.usage,
                system_fingerprint=self._context.fingerprint,
                prompt_token_ids=list(form.prompt_ids) if form.token_ids else msgspec.UNSET,
                prompt_logprobs=msgspec.UNSET if scores is None else scores,
            )
        )


class ChatService:
    """Turns chat requests into answers under way."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def start(self, request: ChatCompletionRequest, caller: Caller) -> ChatAnswer:
        """Check everything, then submit. Raises ApiError; after it nothing of the request can be refused."""
        context = self._context
        context.check_model(request.model)
        request.check_supported()
        top_logprobs = _top_logprobs(request, context.settings.max_logprobs)
        renamed: Mapping[str, str] = {
            "logprobs": "top_logprobs",
            "max_tokens": "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens",
        }
        values = sampling_values(request, context.defaults, context.settings)
        values["max_tokens"] = _max_tokens(request, context.defaults)
        values["logprobs"] = top_logprobs
        values["prompt_logprobs"] = checked_prompt_logprobs(
            request.prompt_logprobs, context.settings.max_logprobs
        )
        structure = asked_structure(request)
        tools = tool_use(request)
        reasoning = context.reasoning_format
        format = constrained_format(context.tool_format) if tools.required else context.tool_format
        parser = ParserSpec(format if tools.callable else None, reasoning, tools.names)
        if parser.control:
            values["skip_special_tokens"] = False
        if tools.required:
            values["stop"] = []  # there is no text that they could end
        params = make_params(values, renamed)
        deadlines = Deadlines.of(request, caller, context.settings)
        ids = await deadlines.kept(self._encode(request, tools))
        opened = self._ends_in_thought(ids)
        parser = replace(parser, opened=opened)
        if values["stop"] and parser.pauses:
            params = replace(params, stop_pauses=parser.pauses, stop_paused=parser.starts_paused)
        context.check_budget(len(ids), params.width, _asked_tokens(request), renamed["max_tokens"])
        thoughts = Thoughts(reasoning, opened, context.engine.tokenizer.control_token)
        wanted = answer_structure(structure, tools, format, thoughts)
        params = await deadlines.kept(context.constrained(params, wanted, caller))
        context.waiting.check(len(ids))
        generation = context.submit(
            ids, params, request, caller=caller, prompt_param="messages", renamed=renamed
        )
        form = ChatForm(
            context.engine.tokenizer,
            ids,
            top_logprobs=top_logprobs,
            prompt_top_logprobs=request.prompt_logprobs,
            token_ids=bool(request.return_token_ids),
            include_usage=request.include_usage,
            running_usage=request.running_usage,
            parser=parser if parser.tools or parser.reasoning else None,
            include_reasoning=request.include_reasoning is not False,
            echo=echoed_text(request.messages) if request.echo else "",
        )
        return ChatAnswer(context, generation, form)

    async def encode(self, request: ChatCompletionRequest, tools: ToolUse) -> list[int]:
        """The prompt's ids, without a limit on their number."""
        if not request.messages:
            raise invalid("messages", "messages must not be empty.")
        whole = request.truncate_prompt_tokens is None
        if whole:
            self._context.length.check_least(len(request.messages), "messages")
        given, introduced, goes_on = template_variables(request)
        if goes_on and request.messages[-1].role != "assistant":
            raise invalid(
                "continue_final_message", "continue_final_message needs an assistant message at the end."
            )
        context = self._context
        tokenizer, length = context.engine.tokenizer, context.length
        variables = {
            **effort_variables(
                request.reasoning_effort,
                context.engine.model.chat_template,
                context.reasoning_format is not None,
            ),
            **given,
        }

        def work() -> list[int]:
            if whole:
                length.check_bytes(text_bytes(request.messages), "messages")
            return tokenizer.encode_chat(
                plain_messages(request.messages),
                add_generation_prompt=introduced,
                continue_final_message=goes_on,
                add_special_tokens=bool(request.add_special_tokens),
                template_kwargs=variables,
                tools=tools.described,
                call_form=context.tool_format.example,
            )

        return await self._context.workers.run(work, text_length(request.messages), chat=True)

    async def _encode(self, request: ChatCompletionRequest, tools: ToolUse) -> list[int]:
        return self._context.shorten_prompt(await self.encode(request, tools), request, "messages")

    def _ends_in_thought(self, ids: Sequence[int]) -> bool:
        """Whether the template, or a message that is continued, has opened the thought already."""
        reasoning = self._context.reasoning_format
        if reasoning is None:
            return False
        end = self._context.engine.tokenizer.decode(ids[-_TAIL:])
        return end.rstrip().endswith(reasoning.opening)


def _asked_tokens(request: ChatCompletionRequest) -> int | None:
    newer = request.max_completion_tokens
    return request.max_tokens if newer is None else newer


def _max_tokens(request: ChatCompletionRequest, defaults: Mapping[str, Any]) -> int | None:
    asked = _asked_tokens(request)
    return defaults.get("max_tokens") if asked is None else asked


def _top_logprobs(request: ChatCompletionRequest, limit: int) -> int | None:
    """None: no logprobs; 0: those of the chosen tokens; k: and the k best."""
    top = request.top_logprobs
    if top is not None and not 0 <= top <= limit:
        raise invalid("top_logprobs", f"top_logprobs must be from 0 to {limit}, got {top}.")
    if not request.logprobs:
        if top:
            raise invalid("top_logprobs", "top_logprobs needs logprobs to be true.")
        return None
    return top or 0
