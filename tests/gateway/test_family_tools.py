"""The templates of the families: which format each is found to write, and how it renders tools and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served import Served, octavo_serve
from transcripts import message_of

from octavo import _engine
from octavo.chat import ChatTemplate
from octavo.tokenizer import Tokenizer, from_gguf
from octavo_gateway.api.parsers.formats import reasoning_format, tool_format
from octavo_gateway.server.served_engine import ServedTokenizer

TEMPLATES = Path(__file__).parents[1] / "python" / "chat_templates"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Looks the weather up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
# Mistral's and some others' templates want ids of nine letters and digits.
CALL = {
    "id": "a1B2c3D4e",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a1B2c3D4e", "name": "get_weather", "content": "21 degrees"},
]


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Tokenizer:
    return from_gguf(_engine.GgufFile(str(smollm2)).metadata())


@pytest.mark.parametrize(
    ("family", "tools", "reasoning"),
    [
        ("gemma-2", "hermes", None),
        ("gemma-3", "hermes", None),
        ("glm-4", "hermes", None),
        ("gpt-oss", "harmony", "harmony"),
        ("granite", "hermes", None),
        ("llama-3", "llama3_json", None),
        ("mistral", "mistral", None),
        ("olmo-2", "hermes", None),
        ("phi-3", "hermes", None),
        ("phi-4", "hermes", None),
        ("qwen-3", "hermes", "think"),
        ("smollm-3", "hermes", "think"),
    ],
)
def test_formats_and_history(tokenizer: Tokenizer, family: str, tools: str, reasoning: str | None) -> None:
    """Behaviour 75: null content is never a word, whatever the template makes of tools."""
    template = ChatTemplate(tokenizer, (TEMPLATES / f"{family}.jinja").read_text())
    format = tool_format("auto", template.source)
    thoughts = reasoning_format("auto", template.source)
    assert (format.name, thoughts.name if thoughts else None) == (tools, reasoning)
    served = ServedTokenizer(tokenizer, template, tokenizer.vocab_size)
    ids = served.encode_chat(
        HISTORY,
        add_generation_prompt=True,
        continue_final_message=False,
        add_special_tokens=False,
        template_kwargs={},
        tools=[TOOL],
        call_form=format.example,
    )
    text = tokenizer.decode(ids, skip_special_tokens=False)
    for part in ("get_weather", "city", "Paris", "21 degrees"):
        assert part in text, text
    assert "None" not in text and "null" not in text


@pytest.mark.slow
def test_a_stop_string_does_not_end_a_thought(tmp_path: Path) -> None:
    """Behaviour 41, in the engine: the template opens a thought that the model never closes."""
    template = tmp_path / "thinking.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n<think>\n"
    )
    options = ("--chat-template", str(template), "--max-model-len", "256", "--threads", "1")
    with octavo_serve(*options) as server:
        plain = _thought(server)
        stopped = _thought(server, stop=[" the", "a", plain[5:9]])
        message = message_of(server.stream(stop=[" the", "a"], max_tokens=24, ignore_eos=True))
    assert len(plain) > 20 and stopped == plain
    assert message["reasoning"] == plain and message["content"] == "" and message["finish_reason"] == "length"


def _thought(server: Served, **fields: Any) -> str:
    _, body = server.chat(max_tokens=24, ignore_eos=True, **fields)
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] is None
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 24
    return str(choice["message"]["reasoning"])
