"""The families' chat templates render as transformers renders them, and what they refuse is refused in their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest

from octavo.chat import ChatTemplate
from octavo.errors import InvalidArgumentError
from octavo.tokenizer import Tokenizer, from_folder, from_gguf

# In the message formats of the families, each as short as its format allows.
TEMPLATES = {
    file.stem: file.read_text() for file in sorted((Path(__file__).parent / "chat_templates").iterdir())
}
CITY = {
    "city": {"type": "string"},
    "units": {"type": "array", "items": {"type": "string"}},
    "n": {"enum": ["1", "2"]},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'the <weather> & "more"',
            "parameters": {"type": "object", "properties": CITY},
        },
    }
]
DOCUMENTS = [{"title": "One", "text": "first é"}, {"title": "Two", "text": "second"}]
USER, ANSWER = (
    {"role": "user", "content": " What's up?\n"},
    {"role": "assistant", "content": "\nAll <b>fine</b>. "},
)
SYSTEM = {"role": "system", "content": "Be brief. /no_think"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "abcdefghi",
            "type": "function",
            "function": {"name": "weather", "arguments": {"city": "Zürich"}},
        }
    ],
}
RESULT = {"role": "tool", "content": '{"t": 3}'}
CHATS: list[list[dict[str, Any]]] = [
    [USER],
    [SYSTEM, USER],
    [USER, ANSWER, USER],
    [SYSTEM, USER, ANSWER, {"role": "user", "content": "日本語 😀"}],
    [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"}, USER, ANSWER],
    [USER, CALL, RESULT],
    [SYSTEM, USER, CALL, RESULT, RESULT, ANSWER, USER],
    [USER, {**CALL, "reasoning_content": "I look."}, RESULT, {**ANSWER, "reasoning_content": "Cold."}],
    [USER, USER],
    [ANSWER, USER],
    [USER, RESULT],
    [USER, {"role": "assistant", "content": "<|channel|>x"}],
]
EXTRAS: list[dict[str, Any]] = [
    {},
    {"tools": TOOLS},
    {
        "documents": DOCUMENTS,
        "enable_thinking": False,
        "date_string": "1 Jan 2030",
        "reasoning_effort": "high",
    },
]


def compare(ours: ChatTemplate, reference: Any, chat: Any, prompt: bool, extra: dict[str, Any]) -> bool:
    """Whether both rendered the chat; an assertion fails unless they agree."""
    try:
        want = reference.apply_chat_template(
            chat, chat_template=ours.source, add_generation_prompt=prompt, tokenize=False, **extra
        )
    except jinja2.TemplateError as error:
        with pytest.raises(InvalidArgumentError) as caught:
            ours.encode(chat, add_generation_prompt=prompt, **extra)
        assert str(error) in str(caught.value) and caught.value.param == "messages"
        return False
    assert ours.render(chat, add_generation_prompt=prompt, **extra) == want
    return True


@pytest.mark.parametrize("family", TEMPLATES)
def test_renders_as_transformers(tokenizer: Tokenizer, reference: Any, family: str) -> None:
    ours = ChatTemplate(tokenizer, TEMPLATES[family])
    done = [
        compare(ours, reference, chat, prompt, extra)
        for chat in CHATS
        for prompt in (False, True)
        for extra in EXTRAS
    ]
    assert sum(done) >= 4 * len(EXTRAS)


@pytest.mark.parametrize(
    ("family", "chat", "says"),
    [
        ("gemma-2", [SYSTEM, USER], "System role not supported"),
        ("gemma-3", [USER, USER], "roles must alternate"),
        ("mistral", [USER, SYSTEM], "A system message must come first"),
        ("llama-3", [USER, {**CALL, "tool_calls": CALL["tool_calls"] * 2}], "single tool-calls"),
        ("gpt-oss", [USER, RESULT], "no previous assistant message"),
    ],
)
def test_what_a_template_refuses_is_the_requests_error(
    tokenizer: Tokenizer, family: str, chat: Any, says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says) as caught:
        ChatTemplate(tokenizer, TEMPLATES[family]).encode(chat)
    assert (caught.value.code, caught.value.param) == ("invalid_argument", "messages")


def test_parts_reach_the_templates_that_read_them(tokenizer: Tokenizer) -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert "user\nab<end_of_turn>" in ChatTemplate(tokenizer, TEMPLATES["gemma-3"]).render(chat)
    assert "<|user|>\na\nb<|end|>" in ChatTemplate(tokenizer, TEMPLATES["phi-3"]).render(chat)


@pytest.mark.parametrize("family", ["gemma-3", "qwen-3"])
def test_the_template_comes_with_the_file(
    smollm2_metadata: dict[str, Any], smollm2_folder: Path, tmp_path: Path, family: str
) -> None:
    source = TEMPLATES[family]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((smollm2_folder / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text(source)
    gguf = from_gguf({**smollm2_metadata, "tokenizer.chat_template": source})
    texts = [ChatTemplate(t).render(CHATS[3]) for t in (gguf, from_folder(tmp_path))]
    assert texts[0] == texts[1] and "日本語 😀" in texts[0]
