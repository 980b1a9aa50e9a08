"""``LLM``: a model in this process, shaped as vLLM's."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from octavo import _engine
from octavo.checks import invalid
from octavo.engine_args import EngineArgs
from octavo.errors import InvalidArgumentError
from octavo.fork_point import fork_point
from octavo.loading import LoadedModel, load
from octavo.models.hub import DEFAULT_MODEL
from octavo.output_builder import OutputBuilder
from octavo.outputs import RequestOutput
from octavo.progress import Progress
from octavo.prompts import Prompt, is_single, no_adapter, prepare
from octavo.sampling_params import SamplingParams
from octavo.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

# The engine is waited for in slices, so that a signal (Ctrl-C) is noticed between them.
_WAIT_MS = 100

Params = SamplingParams | Sequence[SamplingParams] | None


class LLM:
    """A model for generation from Python.

    ``with LLM(...) as llm:`` shuts the engine down at the end of the block; otherwise it goes with the object. It
    may be used from several threads. It cannot be used in a forked child process.

    Args:
        model: a folder, a GGUF file, a Hugging Face id or a built-in name; the built-in default without one.
        kwargs: see ``octavo.engine_args.EngineArgs``. vLLM's names; those that would change nothing here are
            accepted, others raise.

    Raises:
        ModelError: the model cannot be loaded.
        InvalidArgumentError: an argument is unknown or out of range; it is named.
    """

    def __init__(self, model: Any = DEFAULT_MODEL, **kwargs: Any) -> None:
        self.model: LoadedModel = load(EngineArgs.from_kwargs({"model": model, **kwargs}))
        self._counter = itertools.count()

    def generate(
        self,
        prompts: Any = None,
        sampling_params: Params = None,
        *,
        prompt_token_ids: Any = None,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: Sequence[int] | None = None,
        lora_request: None = None,
    ) -> list[RequestOutput]:
        """Continue each prompt.

        Args:
            prompts: a string, a list of token ids, ``{"prompt": ...}`` or ``{"prompt_token_ids": ...}``, or a list
                of these. Arrays and tensors stand for lists.
            sampling_params: one for all, one per prompt, or None for the model's defaults.
            prompt_token_ids: token ids (one list or several) in place of ``prompts``.
            use_tqdm: show a progress bar; or what to make it with.
            priority: one number per prompt, smaller runs first.
            lora_request: only None; adapters are not supported.

        Returns:
            The outputs in the order of the prompts. A request that failed in the engine has finish_reason "error",
            and a warning says why.

        Raises:
            InvalidArgumentError, RefusedError: a prompt or a parameter cannot be served; nothing is generated then.
        """
        no_adapter(lora_request)
        if (prompts is None) == (prompt_token_ids is None):
            raise InvalidArgumentError("give either prompts or prompt_token_ids", param="prompts")
        given = prompts if prompts is not None else prompt_token_ids
        if hasattr(given, "tolist"):  # an array or a tensor
            given = given.tolist()
        if not hasattr(given, "__iter__"):
            raise invalid("prompts", given, "a prompt or a list of prompts")
        ready = prepare(self.model, [given] if is_single(given) else list(given))
        return self._run(ready, sampling_params, use_tqdm, priority)

    def chat(
        self,
        messages: Any,
        sampling_params: Params = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of several.

        Args:
            messages: a list of ``{"role", "content"}`` maps, or a list of such lists. Roles are developer, system,
                user, assistant and tool.
            sampling_params, use_tqdm, lora_request: as in ``generate``.
            chat_template: Jinja source in place of the model's.
            tools: functions that may be called, as OpenAI describes them. A template that knows no tools gets them
                in the system message.
            add_generation_prompt, continue_final_message, chat_template_kwargs: see
                ``octavo.chat.ChatTemplate.render``.
        """
        from octavo.chat import ChatTemplate
        from octavo.chat_roles import check_roles
        from octavo.tool_prompt import fitted

        no_adapter(lora_request)
        template = self.model.chat_template
        if chat_template is not None:
            template = ChatTemplate(self.model.require_tokenizer("messages"), chat_template)
        conversations = messages if messages and isinstance(messages[0], (list, tuple)) else [messages]
        for conversation in conversations:
            check_roles(conversation)
        fits = [fitted(template, conversation, tools or ()) for conversation in conversations]
        ready = [
            Prompt(
                None,
                template.encode(
                    conversation,
                    tools=described or None,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continue_final_message,
                    **(chat_template_kwargs or {}),
                ),
            )
            for conversation, described in fits
        ]
        for prompt in ready:
            prompt.text = template.tokenizer.decode(prompt.ids, skip_special_tokens=False)
        return self._run(ready, sampling_params, use_tqdm, None)

    def fork(
        self,
        request: RequestOutput,
        sampling_params: SamplingParams | None = None,
        *,
        choice: int = 0,
        position: int | None = None,
        use_tqdm: bool | Callable[..., Any] = False,
    ) -> RequestOutput:
        """Continue a completion a second time, from its end or from a token within it.

        What was computed is shared: full blocks of the cache are neither computed nor copied again, as long as they
        are cached. With the same seed a fork draws other random numbers than its parent and its siblings; penalties
        go on counting what was generated before.

        Args:
            request: what ``generate``, ``chat`` or ``fork`` returned.
            sampling_params: None is those of the request. ``max_tokens`` and ``min_tokens`` count new tokens.
            choice: which of its completions.
            position: how many tokens are kept, prompt included; None is all of them.

        Returns:
            An output whose prompt is what was kept.

        Raises:
            InvalidArgumentError: the position or choice is not there, or the engine has forgotten the request: it
                remembers about as many tokens as the cache holds.
            RefusedError: there is no room behind the position, with the numbers.
        """
        point = fork_point(request, sampling_params, choice, position)

        def start(channel: _engine.Channel) -> Iterator[tuple[int, OutputBuilder]]:
            fork = self.model.fork(point, channel)
            yield fork, self._builder(None, point.ids, point.params, fork)

        builder = self._complete(start, 1, use_tqdm)[0]
        if builder.error is not None:
            raise builder.error
        return builder.output()

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.model.require_tokenizer("get_tokenizer")

    def get_default_sampling_params(self) -> SamplingParams:
        """The model's own defaults (generation_config.json), else octavo's."""
        return self.model.default_sampling_params()

    def stats(self) -> dict[str, Any]:
        """Counters and gauges of the engine, as of its last step."""
        self.model.check_alive()
        return dict(self.model.engine.stats())

    def pause(self) -> None:
        """Let the engine end its step and take no other until ``resume``; weights and cache can be viewed then."""
        self.model.check_alive()
        self.model.engine.pause()

    def resume(self) -> None:
        """Go on after ``pause``."""
        self.model.check_alive()
        self.model.engine.resume()

    @contextlib.contextmanager
    def paused(self) -> Iterator[LLM]:
        """``with llm.paused():`` the engine takes no step."""
        self.pause()
        try:
            yield self
        finally:
            self.resume()

    def weight_view(self, name: str) -> torch.Tensor:
        """A weight as a torch tensor where it lies in memory: read it, never write it. Only while paused.

        Args:
            name: Hugging Face's name, ``"model.layers.0.input_layernorm.weight"``.

        Returns:
            A norm or bias ``[n]`` in float32; a dense matrix ``[panels, 2, 8, k]``, its rows in panels of 16 (
            ``view.flatten(0, 2)[:n]`` copies it to ``[n, k]``). A view keeps the engine's memory alive; after
            ``resume`` what it shows may change at any time.

        Raises:
            ModelError: no such weight, or it is quantized and so has no view.
        """
        self.model.check_alive()
        return _as_tensor(self.model.engine.weight_view(name))

    def kv_view(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer as torch tensors where they lie: read, never write. Only while paused.

        Returns:
            K ``[blocks, kv_heads, head_dim, block_size]`` and V ``[blocks, kv_heads, block_size, head_dim]``.
        """
        self.model.check_alive()
        keys, values = self.model.engine.kv_view(layer)
        return _as_tensor(keys), _as_tensor(values)

    def shutdown(self) -> None:
        """Stop the engine. More calls do nothing; any other use raises ``EngineDeadError``."""
        self.model.shutdown()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _run(
        self,
        prompts: Sequence[Prompt],
        sampling_params: Params,
        use_tqdm: bool | Callable[..., Any],
        priority: Sequence[int] | None,
    ) -> list[RequestOutput]:
        params = self._params_for(len(prompts), sampling_params)
        if priority is not None and len(priority) != len(prompts):
            raise InvalidArgumentError(
                f"priority must have one number per prompt ({len(prompts)}), got {len(priority)}",
                param="priority",
            )
        prompts = [prompt.truncated(p) for prompt, p in zip(prompts, params, strict=True)]

        def start(channel: _engine.Channel) -> Iterator[tuple[int, OutputBuilder]]:
            for i, (prompt, p) in enumerate(zip(prompts, params, strict=True)):
                request = self.model.submit(prompt.ids, p, channel, priority=priority[i] if priority else 0)
                yield request, self._builder(prompt.text, prompt.ids, p, request)

        builders = self._complete(start, len(prompts), use_tqdm)
        for builder in builders:
            if builder.error is not None:
                output = builder.output()
                warnings.warn(f"request {output.request_id} failed: {builder.error}", stacklevel=3)
        return [builder.output() for builder in builders]

    def _builder(
        self, text: str | None, ids: list[int], params: SamplingParams, request: int
    ) -> OutputBuilder:
        return OutputBuilder(self.model, str(next(self._counter)), text, ids, params, request)

    def _complete(
        self,
        start: Callable[[_engine.Channel], Iterator[tuple[int, OutputBuilder]]],
        count: int,
        use_tqdm: bool | Callable[..., Any],
    ) -> list[OutputBuilder]:
        """Wait for ``count`` requests that ``start`` submits; an interrupt aborts them all."""
        self.model.check_alive()
        channel = self.model.engine.open_channel()
        running: dict[int, OutputBuilder] = {}
        builders: list[OutputBuilder] = []
        with self.model.waiting(), contextlib.ExitStack() as at_end:
            at_end.callback(self.model.engine.close_channel, channel)
            at_end.callback(self._abort, channel, running)
            for request, builder in start(channel):
                running[request] = builder
                builders.append(builder)
            with Progress(count, use_tqdm) as progress:
                while running:
                    channel.wait(_WAIT_MS)
                    for builder in _take_in(channel, running):
                        progress.finished(builder.output())
        return builders

    def _abort(self, channel: _engine.Channel, running: dict[int, OutputBuilder]) -> None:
        """Cancel and wait until each request has ended, so that nothing it held is in use any more."""
        for request in running:
            self.model.engine.cancel(request)
        while running and self.model.is_alive:
            channel.wait(_WAIT_MS)
            _take_in(channel, running)

    def _params_for(self, count: int, given: Params) -> list[SamplingParams]:
        if given is None:
            given = self.model.default_sampling_params()
        if isinstance(given, SamplingParams):
            return [given] * count
        params = list(given)
        if len(params) != count or not all(isinstance(p, SamplingParams) for p in params):
            raise InvalidArgumentError(
                f"sampling_params must be one SamplingParams or one per prompt ({count}), got {len(params)}",
                param="sampling_params",
            )
        return params


def _as_tensor(view: Any) -> torch.Tensor:
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(view)


def _take_in(channel: _engine.Channel, running: dict[int, OutputBuilder]) -> list[OutputBuilder]:
    """Give each waiting delta to its request; the requests that have ended leave ``running`` and are returned."""
    ended = []
    for delta in channel.drain():
        builder = running[delta.id]
        builder.add(delta)
        if builder.finished:
            ended.append(running.pop(delta.id))
    return ended
