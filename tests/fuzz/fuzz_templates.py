"""Chat templates under Atheris: messages of any form, and templates of any text, give a prompt or an error.

    python tests/fuzz/fuzz_templates.py -runs=100000 [CORPUS_FOLDER]

An input is a byte that picks a published template, or none, and JSON: {"messages": …, "tools": …, "template": …}.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import atheris
from json_mutator import mutate_json
from sources import find_sources_first

find_sources_first()

with atheris.instrument_imports(include=["octavo.chat", "octavo.chat_content", "octavo.checks", "jinja2"]):
    import jinja2.ext
    import jinja2.sandbox  # noqa: F401 - imported later by the template, and then not instrumented

    from octavo.chat import ChatTemplate
    from octavo.errors import OctavoError
    from octavo.tokenizer import Tokenizer

FOLDER = Path(__file__).parents[1] / "python" / "chat_templates"
# Rendering needs the names of special tokens alone.
TOKENIZER = cast(
    Tokenizer, SimpleNamespace(special_tokens={"bos_token": "<s>", "eos_token": "</s>"}, chat_template=None)
)
TEMPLATES = [ChatTemplate(TOKENIZER, path.read_text()) for path in sorted(FOLDER.glob("*.jinja"))]
HELLO = {"role": "user", "content": "Hi"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CALLING = {"role": "assistant", "tool_calls": [CALL]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
SEEDS: tuple[dict[str, Any], ...] = (
    {"messages": [{"role": "system", "content": "Be brief."}, HELLO]},
    {"messages": [HELLO, {"role": "assistant", "content": "Ho"}], "continue_final_message": True},
    {
        "messages": [HELLO, CALLING, {"role": "tool", "content": "1"}],
        "tools": [TOOL],
    },
    {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "documents": [{"text": "x"}],
    },
    {
        "messages": [HELLO],
        "template": "{% for m in messages %}{{ m.content | trim }}{{ m | tojson }}{% endfor %}",
    },
    {
        "messages": [HELLO],
        "template": "{% set x = messages[0]['content'] %}{{ x.__class__ }}{{ raise_exception(x) }}",
    },
)


def render(which: int, given: dict[str, Any]) -> None:
    """Render as the gateway does with what a client or a model folder holds."""
    source = given.pop("template", None)
    if isinstance(source, str):
        if "range" in source or "*" in source:
            return  # a template may count and multiply: that takes time and is no fault
        template = ChatTemplate(TOKENIZER, source)
    else:
        template = TEMPLATES[which % len(TEMPLATES)]
    going_on = given.pop("continue_final_message", False) is True
    template.render(
        given.pop("messages", None),
        tools=given.pop("tools", None),
        documents=given.pop("documents", None),
        continue_final_message=going_on,
        add_generation_prompt=not going_on,
    )


def test_one_input(data: bytes) -> None:
    try:
        given = json.loads(data[1:])
    except (ValueError, RecursionError):
        return
    if isinstance(given, dict):
        with contextlib.suppress(OctavoError):
            render(data[0], given)


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Most often another input of well-formed JSON, else libFuzzer's own mutation."""
    if data and seed % 8:
        mutated = mutate_json(data[1:], max_size - 1, seed)
        if mutated is not None:
            return bytes([seed % 251]) + mutated
    return bytes(atheris.Mutate(data, max_size))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            Path(argument).mkdir(parents=True, exist_ok=True)
            for i, seed in enumerate(SEEDS):
                (Path(argument) / f"seed{i}").write_bytes(b"\0" + json.dumps(seed).encode())
    atheris.Setup(sys.argv, test_one_input, custom_mutator=mutate)
    atheris.Fuzz()
