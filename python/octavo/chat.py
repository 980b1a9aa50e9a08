"""Chat messages to token ids, by the model's own Jinja template."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from octavo import checks
from octavo.chat_content import content_texts
from octavo.errors import InvalidArgumentError, ModelError, OctavoError
from octavo.templating import OutOfTimeError, TemplateEnvironment, TemplateLimitError, Watchdog
from octavo.tokenizer import Tokenizer
from octavo.tokenizer.control import ControlTokens

# The same thought under the names that clients and templates have given it.
_REASONING = ("reasoning_content", "reasoning", "thinking")
# Put behind the last message to see where a message that is to be continued ends; the space shows if it was trimmed.
_END_MARK = "\ufdefEND_OF_MESSAGE "


MAX_SECONDS = 2.0  # of a processor, for one rendering


class ChatTemplate:
    """A model's chat template: renders messages to text and encodes them to token ids.

    The template runs in Jinja's immutable sandbox with the globals, filters and extensions that Hugging Face's
    libraries offer to it, within ``MAX_SECONDS`` and the sizes of ``octavo.templating.budget``.

    Args:
        tokenizer: gives the token ids, the template's named tokens and, without ``source``, the template.
        source: the template, in place of the tokenizer's.

    Raises:
        ModelError: there is no template, or it is not valid Jinja.
    """

    def __init__(self, tokenizer: Tokenizer, source: str | None = None) -> None:
        source = source if source is not None else tokenizer.chat_template
        if source is None:
            raise ModelError(
                "the model has no chat template: it may not be trained to chat; "
                "give chat_template, or use prompts instead of messages",
                code="unsupported",
                param="chat_template",
            )
        self.source = source
        self.tokenizer = tokenizer
        self._environment = TemplateEnvironment()
        self._watchdog = Watchdog()
        self._compiled = _compile(self._environment, source)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """The chat as text.

        Args:
            messages: ``{"role", "content"}`` maps; content may be a string, a list of text parts, or None.
            tools, documents: passed to the template.
            add_generation_prompt: end with what introduces the assistant's answer.
            continue_final_message: end inside the last message, so that the model goes on with it.
            kwargs: more variables for the template.

        Raises:
            InvalidArgumentError: malformed messages, or the template refused them; with the template's own message.
        """
        prepared = self._prepare(messages, continue_final_message, add_generation_prompt)
        return self._render(
            prepared,
            _plain(tools, "tools"),
            _plain(documents, "documents"),
            kwargs,
            add_prompt=add_generation_prompt,
            continue_final=continue_final_message,
        )

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        allow_control_tokens: bool = False,
        add_special_tokens: bool = False,
        **kwargs: Any,
    ) -> list[int]:
        """The chat as token ids; see ``render`` for the arguments. The template writes BOS itself.

        Args:
            add_special_tokens: put the tokenizer's own special tokens around the chat, for templates without BOS.
            allow_control_tokens: let control tokens inside messages act as such. By default a message that holds
                ``<|im_end|>`` gives the ids of those characters as plain text, in every role.
        """
        prepared = self._prepare(messages, continue_final_message, add_generation_prompt)
        tool_data, document_data = _plain(tools, "tools"), _plain(documents, "documents")
        flags = {"add_prompt": add_generation_prompt, "continue_final": continue_final_message}
        if allow_control_tokens or not self._control.appear_in([prepared, tool_data, document_data]):
            text = self._render(prepared, tool_data, document_data, kwargs, **flags)
            ids = self.tokenizer.encode(text, add_special_tokens=False)
        else:
            fences, (prepared, tool_data, document_data) = self._control.fence(
                prepared, tool_data, document_data
            )
            text = self._render(prepared, tool_data, document_data, kwargs, **flags)
            ids = self._control.encode(text, fences)
        if not add_special_tokens:
            return ids
        before, after = self.tokenizer.special_affixes
        return [*before, *ids, *after]

    @cached_property
    def _control(self) -> ControlTokens:
        return ControlTokens(self.tokenizer, self.source)

    @cached_property
    def takes_parts(self) -> bool:
        """Whether the template reads content given as a list of parts, found out by trying."""
        probe = [{"role": "user", "content": [{"type": "text", "text": "probe"}]}]
        text = self._probe(probe, None)
        return "probe" in text and "'type'" not in text and '"type"' not in text

    @cached_property
    def takes_tools(self) -> bool:
        """Whether the template describes tools to the model, found out by trying."""
        tool = {"type": "function", "function": {"name": "probe", "description": "", "parameters": {}}}
        return "probe" in self._probe([{"role": "user", "content": "-"}], [tool])

    @cached_property
    def writes_calls(self) -> bool:
        """Whether the template writes calls of earlier answers, found out by trying."""
        call = {
            "id": "probe1234",
            "type": "function",
            "function": {"name": "probe", "arguments": {"probe": 1}},
        }
        said = {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "probe1234", "content": "-"}
        return "probe" in self._probe([{"role": "user", "content": "-"}, said, result], None)

    @cached_property
    def takes_system(self) -> bool:
        """Whether the template writes a system message, found out by trying."""
        return "probe" in self._probe(
            [{"role": "system", "content": "probe"}, {"role": "user", "content": "-"}], None
        )

    def _probe(self, messages: list[dict[str, Any]], tools: Any) -> str:
        try:
            return self._render(messages, tools, None, {}, add_prompt=False, continue_final=False)
        except OctavoError:
            return ""

    def _prepare(self, messages: Any, continue_final: bool, add_prompt: bool) -> list[dict[str, Any]]:
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence) or not messages:
            raise checks.invalid("messages", messages, "a list of at least one message")
        if continue_final and add_prompt:
            raise InvalidArgumentError(
                "continue_final_message and add_generation_prompt exclude each other, got both true",
                param="continue_final_message",
            )
        return [self._prepare_message(message, f"messages[{i}]") for i, message in enumerate(messages)]

    def _prepare_message(self, message: Any, where: str) -> dict[str, Any]:
        if not isinstance(message, Mapping):
            raise checks.invalid(where, message, "a map with role and content")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise checks.invalid(f"{where}.role", role, "a string")
        out: dict[str, Any] = {k: _plain(v, f"{where}.{k}") for k, v in message.items() if v is not None}
        if role == "developer" and "developer" not in self.source:
            out["role"] = "system"
        out["content"] = self._prepare_content(out.get("content", ""), f"{where}.content")
        reasoning = next((out[name] for name in _REASONING if name in out), None)
        if reasoning is not None:
            out = {**dict.fromkeys(_REASONING, reasoning), **out}
        calls = out.get("tool_calls")
        if calls == []:
            del out["tool_calls"]
        elif calls is not None:
            out["tool_calls"] = _parse_arguments(calls, f"{where}.tool_calls")
        return out

    def _prepare_content(self, content: Any, where: str) -> Any:
        if isinstance(content, str):
            return content
        texts = content_texts(content, where)
        if not self.takes_parts:
            return "\n".join(texts)
        return [{"type": "text", "text": text} for text in texts]

    def _render(
        self,
        messages: list[dict[str, Any]],
        tools: Any,
        documents: Any,
        kwargs: Mapping[str, Any],
        *,
        add_prompt: bool,
        continue_final: bool,
    ) -> str:
        if continue_final:
            messages = [*messages[:-1], _with_end_mark(messages[-1])]
        variables = {
            **self.tokenizer.special_tokens,
            **_plain(dict(kwargs), "chat_template_kwargs"),
            "messages": messages,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_prompt,
        }
        try:
            text = self._watchdog.run(
                MAX_SECONDS, lambda: self._environment.render(self._compiled, variables)
            )
        except OutOfTimeError:
            raise InvalidArgumentError(
                f"the chat template took more than {MAX_SECONDS:g} s of processor time, which is the limit",
                param="messages",
            ) from None
        except TemplateLimitError as error:
            raise InvalidArgumentError(f"the chat template {error}", param="messages") from error
        except MemoryError as error:
            raise InvalidArgumentError(
                "the chat template needs more memory than there is", param="messages"
            ) from error
        except Exception as error:  # a template is a program: it may raise anything
            raise InvalidArgumentError(
                f"the chat template failed: {_brief(error)}", code="invalid_argument", param="messages"
            ) from error
        return _cut_at_end_mark(text) if continue_final else text


def _with_end_mark(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content + _END_MARK}
    if not content:
        return {**message, "content": [{"type": "text", "text": _END_MARK}]}
    return {**message, "content": [*content[:-1], {**content[-1], "text": content[-1]["text"] + _END_MARK}]}


def _cut_at_end_mark(text: str) -> str:
    end = text.rfind(_END_MARK.strip())
    if end < 0:
        raise InvalidArgumentError(
            "continue_final_message: the chat template does not write the last message's content",
            param="continue_final_message",
        )
    return text[:end] if text.startswith(_END_MARK, end) else text[:end].rstrip()


def _parse_arguments(calls: Any, where: str) -> list[dict[str, Any]]:
    """Arguments of tool calls as data: clients send JSON text, templates want a map."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise checks.invalid(where, calls, "a list of tool calls")
    out = []
    for call in calls:
        function = call.get("function")
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            with contextlib.suppress(
                ValueError, RecursionError
            ):  # not JSON: the template gets the text as it is
                call = {
                    **call,
                    "function": {**function, "arguments": json.loads(function["arguments"] or "{}")},
                }
        out.append(call)
    return out


def _plain(value: Any, where: str) -> Any:
    """``value`` rebuilt of JSON's types alone, so that the template meets no object with methods of its own."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise checks.invalid(where, key, "a map with string keys")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    raise checks.invalid(where, value, "made of strings, numbers, booleans, null, lists and maps")


def _brief(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:500]


def _compile(environment: TemplateEnvironment, source: str) -> Any:
    try:
        return environment.from_string(source)
    except Exception as error:  # a TemplateError, or what Python's compiler and stack have to say
        raise ModelError(
            f"the chat template is not valid Jinja: {_brief(error)}",
            code="corrupt_file",
            param="chat_template",
        ) from error
