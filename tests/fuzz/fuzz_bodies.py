"""Bodies of requests under Atheris: a body is understood or refused, and nothing else happens.

    python tests/fuzz/fuzz_bodies.py -runs=100000 [CORPUS_FOLDER]

Coverage of the gateway's own code guides what is tried; options are libFuzzer's.
"""

from __future__ import annotations

import json
import sys

import atheris
from json_mutator import mutate_json
from sources import find_sources_first

find_sources_first()

with atheris.instrument_imports(include=["octavo_gateway", "octavo.sampling_params", "octavo.structured"]):
    import octavo.sampling_params
    import octavo.structured  # noqa: F401 - imported later by what is called here, and then not instrumented
    from octavo_gateway.api.messages import plain_messages, text_bytes, text_length
    from octavo_gateway.api.sampling import make_params, sampling_values
    from octavo_gateway.api.settings import ApiSettings
    from octavo_gateway.api.structure import asked_structure
    from octavo_gateway.api.tools import tool_use
    from octavo_gateway.protocol.chat import ChatCompletionRequest
    from octavo_gateway.protocol.completions import CompletionRequest
    from octavo_gateway.protocol.decode import decode
    from octavo_gateway.protocol.errors import ApiError
    from octavo_gateway.protocol.tokens import DetokenizeRequest, TokenizeRequest

BODIES = (ChatCompletionRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)
SETTINGS = ApiSettings(served_names=("model",))
TEXT = [{"type": "text", "text": "Hi"}]
CALL = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
HELLO = [{"role": "user", "content": "Hi"}]
SEEDS = (
    (0, {"model": "model", "messages": HELLO, "max_tokens": 5, "temperature": 0.5, "stop": ["a"], "n": 2}),
    (
        0,
        {
            "messages": HELLO,
            "logit_bias": {"5": -1},
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    (0, {"messages": HELLO, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}),
    (
        0,
        {
            "messages": HELLO,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
        },
    ),
    (
        0,
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [CALL],
                }
            ]
        },
    ),
    (
        0,
        {
            "messages": [{"role": "user", "content": TEXT}],
            "structured_outputs": {"regex": "a+"},
        },
    ),
    (1, {"model": "model", "prompt": ["Hi", "Ho"], "echo": True, "logprobs": 2, "best_of": 3, "top_p": 0.9}),
    (1, {"prompt": [1, 2, 3], "seed": 7, "allowed_token_ids": [1], "bad_words": ["x"], "min_p": 0.1}),
    (2, {"messages": HELLO, "add_generation_prompt": True}),
    (2, {"prompt": "Hi"}),
    (3, {"tokens": [1, 2, 3]}),
)


def understand(kind: int, body: bytes) -> None:
    """All that is done with a body before a model is asked."""
    request = decode(body, BODIES[kind % len(BODIES)])
    if not isinstance(request, (ChatCompletionRequest, CompletionRequest)):
        return
    request.check_supported()
    values = sampling_values(request, {}, SETTINGS)
    asked_structure(request)
    if isinstance(request, ChatCompletionRequest):
        tool_use(request)
        text_bytes(request.messages)
        text_length(request.messages)
        plain_messages(request.messages)
    make_params(values, {})


def test_one_input(data: bytes) -> None:
    if not data:
        return
    try:
        understand(data[0], data[1:])
    except ApiError as e:
        if not 400 <= e.status < 500:
            raise


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Most often another body of well-formed JSON, else libFuzzer's own mutation."""
    if data and seed % 4:
        mutated = mutate_json(data[1:], max_size - 1, seed)
        if mutated is not None:
            return data[:1] + mutated
    return bytes(atheris.Mutate(data, max_size))


def write_seeds(folder: str) -> None:
    """Bodies to begin with: without them it takes long to find the first key."""
    from pathlib import Path

    Path(folder).mkdir(parents=True, exist_ok=True)
    for i, (kind, body) in enumerate(SEEDS):
        (Path(folder) / f"seed{i}").write_bytes(bytes([kind]) + json.dumps(body).encode())


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            write_seeds(argument)
    atheris.Setup(sys.argv, test_one_input, custom_mutator=mutate)
    atheris.Fuzz()
