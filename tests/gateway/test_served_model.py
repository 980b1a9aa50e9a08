"""`octavo serve` with the default model, through the official client and plain HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import BLOCK, BLOCKS, FRANCE, GREEDY, Served, text_of

pytest.importorskip("openai")


def test_the_official_client_streamed_and_not(served: Served) -> None:
    with served.client as client:
        whole = client.chat.completions.create(model=served.model, messages=FRANCE, **GREEDY)
        stream = client.chat.completions.create(model=served.model, messages=FRANCE, stream=True, **GREEDY)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        plain = client.completions.create(model=served.model, prompt="The capital of France is", **GREEDY)
    assert "Paris" in plain.choices[0].text
    assert "Paris" in (whole.choices[0].message.content or "")
    assert text == whole.choices[0].message.content


def test_logprobs_are_the_same_streamed_and_their_bytes_are_the_text(served: Served) -> None:
    asked = {"logprobs": True, "top_logprobs": 3}
    _, whole = served.chat(**asked)
    (choice,) = whole["choices"]
    entries = choice["logprobs"]["content"]
    chunks = served.stream(**asked)
    assert [e for c in chunks for e in (c["choices"][0]["logprobs"] or {"content": []})["content"]] == entries
    assert len(entries) == whole["usage"]["completion_tokens"]
    text = bytes(b for e in entries for b in e["bytes"]).decode()
    assert text.removesuffix("<|im_end|>") == choice["message"]["content"]
    for entry in entries:
        assert len(entry["top_logprobs"]) == 3 and entry["logprob"] == entry["top_logprobs"][0]["logprob"]


def test_characters_that_never_complete(served: Served) -> None:
    """Behaviours 35 and 36: bytes are held while they may become a character, and come out at the end."""
    _, answer = served.request("POST", "/tokenize", {"prompt": "🌍", "return_token_strs": True})
    first = answer["tokens"][0]
    assert answer["token_strs"][0].startswith("bytes:")
    fields = {"allowed_token_ids": [first], "max_tokens": 5, "ignore_eos": True}
    status, whole = served.chat(**fields)
    assert status == 200, whole
    text = whole["choices"][0]["message"]["content"]
    assert "�" in text and whole["choices"][0]["finish_reason"] == "length"
    assert text_of(served.stream(**fields)) == text


@pytest.mark.parametrize("width", [2, pytest.param(7, marks=pytest.mark.slow), 19])
def test_a_stop_string_never_leaks(served: Served, width: int) -> None:
    """Behaviour 39: whatever tokens it spans."""
    text = text_of(served.stream())
    for start in range(0, len(text) - width, 5):
        stop = text[start : start + width]
        expected = text[: text.index(stop)]
        chunks = served.stream(stop=[stop])
        assert text_of(chunks) == expected
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert chunks[-1]["choices"][0]["stop_reason"] == stop
    _, kept = served.chat(stop=[stop], include_stop_str_in_output=True)
    assert kept["choices"][0]["message"]["content"] == expected + stop


def test_a_stop_string_delays_nothing_that_it_cannot_match(served: Served) -> None:
    """Behaviour 40."""
    plain, stopped = served.stream(), served.stream(stop=["~" * 50])
    contents = [[c["choices"][0]["delta"].get("content") for c in chunks] for chunks in (plain, stopped)]
    assert contents[0] == contents[1]
    assert "" not in contents[1][1:]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"999999": 5}}, "logit_bias"),
        ({"stop_token_ids": [999999], "min_tokens": 1}, "stop_token_ids"),
        ({"allowed_token_ids": [999999]}, "allowed_token_ids"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
        ),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ],
)
def test_what_only_the_model_can_judge(served: Served, fields: dict[str, Any], param: str) -> None:
    """Behaviours 28 and 29."""
    for stream in (False, True):
        status, body = served.chat(stream=stream, **fields)
        assert status == 400 and body["error"]["param"] == param, body
    assert served.chat()[0] == 200


@pytest.mark.slow
def test_any_top_k_beside_greedy_requests(served: Served) -> None:
    """Behaviours 23 and 25: above the vocabulary and off are the same, and all run in one batch."""
    _, expected = served.chat()
    with ThreadPoolExecutor(7) as pool:
        odd = [pool.submit(served.chat, temperature=1, top_k=k, seed=1) for k in (49153, 10**9, 0, -1)]
        greedy = [pool.submit(served.chat, top_p=0, top_k=5, temperature=t) for t in (0, 1e-7, 0.5)]
        (answer,) = {json.dumps(task.result()[1]["choices"]) for task in odd}
        assert json.loads(answer)[0]["message"]["content"]
        for task in greedy:
            assert task.result()[1]["choices"] == expected["choices"]


def test_seeds(served: Served) -> None:
    """Behaviours 16 and 17."""
    asked = {"temperature": 1.0, "max_tokens": 12}
    with ThreadPoolExecutor(8) as pool:
        seeded = [pool.submit(served.chat, seed=7, **asked) for _ in range(4)]
        free = [pool.submit(served.chat, **asked) for _ in range(4)]
        assert len({json.dumps(f.result()[1]["choices"]) for f in seeded}) == 1
        assert len({json.dumps(f.result()[1]["choices"]) for f in free}) > 1


def test_cached_tokens_and_salts(served: Served) -> None:
    """Behaviours 12 and 100."""
    messages = [
        {"role": "user", "content": f"Count the words of this text ({time.time()}): " + "one two " * 40}
    ]

    def cached(**fields: Any) -> int:
        status, body = served.chat(messages=messages, max_tokens=2, **fields)
        assert status == 200, body
        return int(body["usage"]["prompt_tokens_details"]["cached_tokens"])

    first, again = cached(), cached()
    assert first < 40 and again >= 64
    chunks = served.stream(messages=messages, max_tokens=2, stream_options={"include_usage": True})
    assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64
    assert [cached(cache_salt=s) for s in ("a", "b")] == [0, 0]
    assert cached(cache_salt="a") >= 64


def test_one_bos_only(served: Served) -> None:
    """Behaviour 77."""
    _, answer = served.request("POST", "/tokenize", {"messages": FRANCE})
    assert answer["tokens"][0] != answer["tokens"][1]
    _, back = served.request("POST", "/detokenize", {"tokens": answer["tokens"]})
    assert back["prompt"].count("<|im_start|>system") == 1 and "None" not in back["prompt"]


def test_echo_scores_the_prompt_cold_and_warm(served: Served) -> None:
    """Behaviours 10, 51 and 52."""
    prompt = f"The quick brown fox jumps over the lazy dog {time.time()} times. " * 3
    answers = [served.complete(prompt=prompt, echo=True, logprobs=1, max_tokens=n) for n in (1, 1, 0)]
    bodies = [body["choices"][0] for status, body in answers if status == 200]
    assert len(bodies) == 3, answers
    cold, warm, scored = (b["logprobs"] for b in bodies)
    assert cold == warm
    assert "".join(cold["tokens"]) == bodies[0]["text"] and bodies[2]["text"] == prompt
    assert scored["token_logprobs"] == cold["token_logprobs"][:-1]
    assert cold["token_logprobs"][0] is None and all(
        x is not None and x <= 0 for x in cold["token_logprobs"][1:]
    )


@pytest.mark.slow
def test_prompts_around_the_size_of_the_pool(served: Served) -> None:
    """Behaviours 1, 2 and 3: each is answered or refused, none hangs, those behind it go on."""
    pool_tokens = BLOCKS * BLOCK
    assert pool_tokens > 1024, "the window, not the pool, is the limit here"
    with ThreadPoolExecutor(12) as pool:
        big = [
            pool.submit(served.complete, prompt=[5] * n, max_tokens=1) for n in (1022, 1023, 1024, 1025, 1600)
        ]
        small = [pool.submit(served.chat, max_tokens=2) for _ in range(6)]
        assert [f.result(240)[0] for f in big] == [200, 200, 400, 400, 400]
        assert [f.result(240)[0] for f in small] == [200] * 6
        assert "maximum context length is 1024 tokens" in big[3].result()[1]["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wait", [0.0, 0.05, pytest.param(0.4, marks=pytest.mark.slow)])
def test_a_client_that_goes_frees_its_blocks(served: Served, stream: bool, wait: float) -> None:
    """Behaviours 81, 82 and 86."""
    assert served.settles(10)
    body = json.dumps({"prompt": [7] * 600, "max_tokens": 400, "ignore_eos": True, "stream": stream}).encode()
    sock = socket.create_connection(("127.0.0.1", served.port))
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    sock.sendall(head + body)
    time.sleep(wait)
    sock.close()
    assert served.settles()
    total = sum(served.metric(f"octavo:kv_blocks_{kind}") for kind in ("live", "cached", "free"))
    assert total == BLOCKS


def test_a_storm_leaves_answers_and_blocks_as_they_were(served: Served) -> None:
    """Behaviours 32 and 83."""
    _, before = served.chat()

    def one(i: int) -> None:
        if i % 3 == 0:
            served.chat(**[{"top_p": 7}, {"messages": []}, {"logit_bias": {"999999": 1}}][i % 9 // 3])
            return
        body = json.dumps({"messages": FRANCE, "max_tokens": 200, "stream": bool(i % 2)}).encode()
        with socket.create_connection(("127.0.0.1", served.port)) as sock:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            sock.sendall(head + body)
            time.sleep((i % 5) * 0.01)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(150)))
    assert served.settles(10)
    _, after = served.chat()
    assert after["choices"] == before["choices"]


def test_metrics_describe_the_pool(served: Served) -> None:
    _, text = served.request("GET", "/metrics")
    families = {f.name: f for f in text_string_to_metric_families(text)}
    (info,) = families["vllm:cache_config_info"].samples
    assert info.labels["num_blocks"] == str(BLOCKS) and info.labels["block_size"] == str(BLOCK)
    assert info.labels["model_name"] == served.model
    assert served.metric("vllm:generation_tokens_total") > 0
    assert served.metric("vllm:prompt_tokens_total") > 0
    assert served.metric("vllm:prefix_cache_hits_total") > 0
    iterations = families["vllm:iteration_tokens_total"].samples
    assert next(s.value for s in iterations if s.name.endswith("_count")) > 0


def test_the_server_has_neither_torch_nor_transformers(served: Served) -> None:
    with open(f"/proc/{served.pid}/maps") as maps:
        assert "torch" not in maps.read()


def test_models_and_version(served: Served) -> None:
    status, models = served.request("GET", "/v1/models")
    assert status == 200 and models["data"][0]["id"] == served.model
    assert models["data"][0]["max_model_len"] == 1024
    assert served.request("GET", "/ready")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        pytest.param(
            ["no/such/model-anywhere", "--offline"], "no/such/model-anywhere", marks=pytest.mark.slow
        ),
        (["--max-model-len", "0"], "--max-model-len must"),
        (["--port", "70000"], "--port"),
        (["--override-generation-config", '{"temperature": -1}', "--port", "0"], "temperature"),
        (["--chat-template", "/nowhere/template"], "chat-template"),
    ],
)
def test_bad_arguments_are_one_line_and_status_2(arguments: list[str], names: str) -> None:
    code = "import sys; from octavo.cli.main import main; sys.exit(main())"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", *arguments], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and names in done.stderr
