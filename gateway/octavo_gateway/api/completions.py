"""POST /v1/completions: prompts as text or ids, echo, and log-probabilities in the legacy shape."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import msgspec

from octavo_gateway.api.caller import Caller
from octavo_gateway.api.context import ApiContext
from octavo_gateway.api.deadlines import Deadlines
from octavo_gateway.api.engine import Delta, PositionLogprobs
from octavo_gateway.api.generation import Generation
from octavo_gateway.api.ids import new_id
from octavo_gateway.api.legacy_logprobs import LegacyWriter, join
from octavo_gateway.api.merge import merged
from octavo_gateway.api.plain_text import PLACE, PlainText
from octavo_gateway.api.prompt_logprobs import checked_prompt_logprobs, positions_of, prompt_logprobs
from octavo_gateway.api.prompts import PlainPrompt, read_prompts
from octavo_gateway.api.sampling import make_params, sampling_values
from octavo_gateway.api.sse import DONE, error_event, event
from octavo_gateway.api.structure import asked_structure
from octavo_gateway.protocol.common import Usage, usage_of
from octavo_gateway.protocol.completions import (
    Completion,
    CompletionChoice,
    CompletionRequest,
    LegacyLogprobs,
)
from octavo_gateway.protocol.errors import ApiError, invalid

DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True)
class Form:
    """What of the engine's output the client wants to see, and how."""

    echo: bool
    top_logprobs: int | None
    prompt_only: bool  # max_tokens 0: the engine makes one token, nobody sees it
    include_usage: bool
    running_usage: bool  # in every chunk
    token_ids: bool
    prompt_top_logprobs: int | None


class _Prompt:
    """A prompt, and what the engine found for its tokens: it comes once for all choices."""

    def __init__(self, prompt: PlainPrompt) -> None:
        self.text = prompt.text
        self.ids = prompt.ids
        self.positions: Sequence[PositionLogprobs | None] | None = None

    def look(self, deltas: Sequence[Delta]) -> None:
        if self.positions is None:
            self.positions = positions_of(deltas, len(self.ids))


class _Choice:
    """One choice of a prompt: turns deltas into pieces of text with their logprobs."""

    def __init__(self, context: ApiContext, index: int, prompt: _Prompt, form: Form) -> None:
        self.index = index
        self._prompt = prompt
        self._form = form
        self._tokenizer = context.engine.tokenizer
        self._started = False
        self._token_ids: list[int] = []  # those that no piece has carried yet
        top = form.top_logprobs
        self._writer = None if top is None else LegacyWriter(self._tokenizer, top)

    def piece(self, deltas: Sequence[Delta]) -> CompletionChoice | None:
        """What `deltas` add, or None when that is nothing."""
        text: list[str] = []
        logprobs: list[LegacyLogprobs] = []
        first, self._started = not self._started, True
        if first and self._form.echo:
            text.append(self._prompt.text)
            if self._writer is not None:
                positions = self._prompt.positions or ()
                logprobs.append(self._writer.prompt(self._prompt.ids, self._prompt.text, positions))
        finish, stop_reason = deltas[-1].finish, deltas[-1].stop_reason
        if not self._form.prompt_only:
            text += [d.text for d in deltas if not d.sent]
            if self._writer is not None:
                logprobs += [self._writer.generated(d.logprobs or ()) for d in deltas]
            if self._form.token_ids:
                self._token_ids += [token for d in deltas for token in d.token_ids]
        elif finish is not None:
            finish, stop_reason = "length", None
        joined = join(logprobs) if self._writer is not None else None
        piece = CompletionChoice(
            index=self.index,
            text="".join(text),
            logprobs=joined,
            finish_reason=finish,
            stop_reason=msgspec.UNSET if stop_reason is None else stop_reason,
        )
        described = first and self._describe_prompt(piece)
        if finish is None and not piece.text and not (joined and joined.tokens) and not described:
            return None
        if self._form.token_ids:
            piece.token_ids, self._token_ids = self._token_ids, []
        return piece

    def _describe_prompt(self, piece: CompletionChoice) -> bool:
        """Adds what was asked for about the prompt; False when that is nothing."""
        form, ids = self._form, self._prompt.ids
        if form.token_ids:
            piece.prompt_token_ids = list(ids)
        if form.prompt_top_logprobs is not None:
            positions = self._prompt.positions or ()
            piece.prompt_logprobs = prompt_logprobs(positions, form.prompt_top_logprobs, self._tokenizer)
        return form.token_ids or form.prompt_top_logprobs is not None


class CompletionAnswer:
    """A completion under way, one generation per prompt."""

    def __init__(
        self,
        context: ApiContext,
        generations: Sequence[Generation],
        prompts: Sequence[PlainPrompt],
        form: Form,
    ) -> None:
        self.generations = generations
        self._context = context
        self._form = form
        self._prompts = [_Prompt(p) for p in prompts]
        # The choices of the first prompt, then those of the second, ...
        self._per_prompt = generations[0].choices
        self._choices = [
            _Choice(context, i, self._prompts[i // self._per_prompt], form)
            for i in range(len(prompts) * self._per_prompt)
        ]
        self._id = new_id("cmpl")
        self._created = int(time.time())

    @property
    def backlog(self) -> int:
        return sum(g.backlog for g in self.generations)

    def plain_text(self) -> PlainText | None:
        """The stream's further events, where they differ in their text alone."""
        form = self._form
        one = len(self._choices) == 1 and form.top_logprobs is None
        if not one or form.token_ids or form.running_usage or form.prompt_only:
            return None
        choice = CompletionChoice(index=0, text=PLACE, logprobs=None, finish_reason=None)
        return PlainText.of_event(self.generations[0], event(msgspec.json.encode(self._answer([choice]))))

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events up to and with [DONE]; a fault becomes an event too."""
        try:
            async for index, deltas in merged(self.generations):
                for choice, some in self._by_choice(index, deltas):
                    piece = choice.piece(some)
                    if piece is not None:
                        usage = self._usage() if self._form.running_usage else msgspec.UNSET
                        yield event(msgspec.json.encode(self._answer([piece], usage)))
        except ApiError as e:
            yield error_event(e)
            return
        last = b""
        if self._form.include_usage:
            last = event(msgspec.json.encode(self._answer([], self._usage())))
        yield last + DONE

    async def whole(self) -> bytes:
        """The whole answer as JSON, its choices in the order of the prompts, those of one prompt together."""
        every: list[list[Delta]] = [[] for _ in self._choices]
        async for index, deltas in merged(self.generations):
            for choice, some in self._by_choice(index, deltas):
                every[choice.index] += some
        pieces = [choice.piece(all_) for choice, all_ in zip(self._choices, every, strict=True)]
        choices = [piece for piece in pieces if piece is not None]
        return msgspec.json.encode(self._answer(choices, self._usage()))

    def _by_choice(self, prompt: int, deltas: Sequence[Delta]) -> list[tuple[_Choice, list[Delta]]]:
        self._prompts[prompt].look(deltas)
        groups: dict[int, list[Delta]] = {}
        for delta in deltas:
            groups.setdefault(delta.choice, []).append(delta)
        first = prompt * self._per_prompt
        return [(self._choices[first + choice], group) for choice, group in groups.items()]

    def _answer(
        self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType = msgspec.UNSET
    ) -> Completion:
        return Completion(
            id=self._id,
            created=self._created,
            model=self._context.model_name,
            choices=choices,
            usage=usage,
            system_fingerprint=self._context.fingerprint,
        )

    def _usage(self) -> Usage:
        parts = [g.usage for g in self.generations]
        return usage_of(
            sum(u.prompt_tokens for u in parts),
            0 if self._form.prompt_only else sum(u.completion_tokens for u in parts),
            sum(u.prompt_tokens_details.cached_tokens for u in parts),
        )


class CompletionService:
    """Turns completion requests into answers under way."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    def check_prompts(self, request: CompletionRequest) -> int:
        """How many prompts there are; a 400 beyond the limit."""
        limit = self._context.settings.max_prompts
        prompt = request.prompt
        several = not isinstance(prompt, str) and bool(prompt) and not isinstance(prompt[0], int)
        count = len(prompt) if several else 1
        if count > limit:
            raise invalid("prompt", f"prompt: {count} prompts in one request, at most {limit} are possible.")
        return count

    async def start(self, request: CompletionRequest, caller: Caller) -> CompletionAnswer:
        """Check everything, then submit. Raises ApiError; after it nothing of the request can be refused."""
        context = self._context
        context.check_model(request.model)
        request.check_supported()
        form = _form(request, context.settings.max_logprobs)
        values = sampling_values(request, context.defaults, context.settings)
        asked = request.max_tokens
        if asked is None:
            asked = context.defaults.get("max_tokens", DEFAULT_MAX_TOKENS)
        values["max_tokens"] = 1 if form.prompt_only else asked
        values["logprobs"] = form.top_logprobs
        tops = (form.prompt_top_logprobs, form.top_logprobs if form.echo else None)
        values["prompt_logprobs"] = max((top for top in tops if top is not None), default=None)
        params = make_params(values, {})
        structure = asked_structure(request)
        deadlines = Deadlines.of(request, caller, context.settings)
        prompts = await deadlines.kept(read_prompts(context, request))
        for prompt in prompts:
            context.check_budget(len(prompt.ids), params.width, request.max_tokens, "max_tokens")
        params = await deadlines.kept(context.constrained(params, structure, caller))
        context.waiting.check(sum(len(prompt.ids) for prompt in prompts))
        generations: list[Generation] = []
        try:
            for prompt in prompts:
                generations.append(
                    context.submit(
                        prompt.ids, params, request, caller=caller, prompt_param="prompt", renamed={}
                    )
                )
        except BaseException:
            for generation in generations:
                generation.close()
            raise
        return CompletionAnswer(context, generations, prompts, form)


def _form(request: CompletionRequest, max_logprobs: int) -> Form:
    echo = bool(request.echo)
    if request.logprobs is not None and not 0 <= request.logprobs <= max_logprobs:
        raise invalid("logprobs", f"logprobs must be from 0 to {max_logprobs}, got {request.logprobs}.")
    return Form(
        echo=echo,
        top_logprobs=request.logprobs,
        prompt_only=echo and request.max_tokens == 0,
        include_usage=request.include_usage,
        running_usage=request.running_usage,
        token_ids=bool(request.return_token_ids),
        prompt_top_logprobs=checked_prompt_logprobs(request.prompt_logprobs, max_logprobs),
    )
