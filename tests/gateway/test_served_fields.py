"""Each field of a request does what it says, with the default model behind the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from served import FRANCE, Served, text_of

Ask = Callable[..., Any]


def content(answer: tuple[int, Any]) -> str:
    status, body = answer
    assert status == 200, body
    choice = body["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def finish(answer: tuple[int, Any]) -> tuple[str, Any]:
    choice = answer[1]["choices"][0]
    return choice["finish_reason"], choice.get("stop_reason")


def ids_of(served: Served, text: str) -> list[int]:
    ids: list[int] = served.request("POST", "/tokenize", {"prompt": text})[1]["tokens"]
    return ids


@pytest.fixture(params=["chat", pytest.param("completions", marks=pytest.mark.slow)])
def ask(request: pytest.FixtureRequest, served: Served) -> Ask:
    return served.chat if request.param == "chat" else served.complete


def test_stop_token_ids(served: Served, ask: Ask) -> None:
    """Behaviour 43: the text before the token is whole, and the reason is its id."""
    _, plain = ask(return_token_ids=True)
    ids = plain["choices"][0]["token_ids"]
    at = next(i for i in range(3, len(ids)) if ids[i] not in ids[:i])
    before = served.request("POST", "/detokenize", {"tokens": ids[:at]})[1]["prompt"]
    for skip in (True, False):
        stopped = ask(stop_token_ids=[ids[at]], skip_special_tokens=skip, return_token_ids=True)
        assert content(stopped) == before
        assert finish(stopped) == ("stop", ids[at])
        kept = ask(stop_token_ids=[ids[at]], skip_special_tokens=skip, include_stop_str_in_output=True)
        through = served.request("POST", "/detokenize", {"tokens": ids[: at + 1]})[1]["prompt"]
        assert content(kept) == through


def test_special_tokens_are_left_out_or_shown(served: Served) -> None:
    (eos,) = ids_of(served, "<|im_end|>")
    forced = {"allowed_token_ids": [eos], "ignore_eos": True, "max_tokens": 3}
    assert content(served.chat(**forced)) == ""
    assert content(served.chat(**forced, skip_special_tokens=False)) == "<|im_end|>" * 3
    assert text_of(served.stream(**forced, skip_special_tokens=False)) == "<|im_end|>" * 3


def test_ignore_eos_and_min_tokens(served: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 40}
    ended = served.chat(**asked)
    count = ended[1]["usage"]["completion_tokens"]
    assert finish(ended)[0] == "stop" and count < 34
    on = served.chat(**asked, ignore_eos=True)
    assert finish(on) == ("length", None) and on[1]["usage"]["completion_tokens"] == 40
    later = served.chat(**asked, min_tokens=count + 5)
    assert later[1]["usage"]["completion_tokens"] >= count + 5


def test_allowed_token_ids_logit_bias_and_bad_words(served: Served, ask: Ask) -> None:
    allowed = [*ids_of(served, " yes"), *ids_of(served, " no")]
    only = ask(allowed_token_ids=allowed, ignore_eos=True, max_tokens=6, return_token_ids=True)
    assert set(only[1]["choices"][0]["token_ids"]) <= set(allowed)
    forced = ask(logit_bias={str(allowed[0]): 100}, max_tokens=3)
    assert content(forced) == " yes" * 3
    plain = content(ask())
    words = plain.replace(",", "").split()
    word = next(w for w in words if len(w) > 3 and len(ids_of(served, " " + w)) == 1)
    assert word not in content(ask(bad_words=[word]))


def test_continue_final_message_and_echo(served: Served) -> None:
    messages = [*FRANCE, {"role": "assistant", "content": "The capital of France is"}]
    fields = {"messages": messages, "continue_final_message": True, "max_tokens": 4}
    more = content(served.chat(**fields))
    assert "Paris" in more and not more.startswith("The capital")
    assert content(served.chat(**fields, echo=True)) == "The capital of France is" + more
    assert text_of(served.stream(**fields, echo=True)) == "The capital of France is" + more
    _, tokens = served.request(
        "POST", "/tokenize", {"messages": messages, "continue_final_message": True, "return_token_strs": True}
    )
    assert tokens["token_strs"][-1] == " is"


def test_add_generation_prompt(served: Served) -> None:
    def rendered(**fields: Any) -> str:
        _, tokens = served.request("POST", "/tokenize", {"messages": FRANCE, **fields})
        return str(served.request("POST", "/detokenize", {"tokens": tokens["tokens"]})[1]["prompt"])

    assert rendered().endswith("<|im_start|>assistant\n")
    assert rendered(add_generation_prompt=False).endswith("France?<|im_end|>\n")


def test_roles_parts_and_nulls_render_alike(served: Served) -> None:
    """Behaviours 75 and 76."""

    def prompt(messages: list[dict[str, Any]]) -> Any:
        status, answer = served.chat(messages=messages, max_tokens=1, return_token_ids=True)
        assert status == 200, answer
        return answer["prompt_token_ids"]

    said = {"role": "user", "content": "Hi"}
    assert prompt([{"role": "developer", "content": "Be brief."}, said]) == prompt(
        [{"role": "system", "content": "Be brief."}, said]
    )
    for role in ("system", "user", "assistant"):
        texts = [{"role": role, "content": "one"}, said]
        parts = [{"role": role, "content": [{"type": "text", "text": "one"}]}, said]
        assert prompt(texts) == prompt(parts)
    empty = prompt([{"role": "assistant", "content": ""}, said])
    assert prompt([{"role": "assistant", "content": None}, said]) == empty
    assert prompt([{"role": "assistant", "content": []}, said]) == empty
    assert prompt([{"role": "assistant", "content": None, "tool_calls": []}, said]) == empty


def test_control_tokens_in_messages_are_text(served: Served) -> None:
    (end,) = ids_of(served, "<|im_end|>")
    _, answer = served.request(
        "POST", "/tokenize", {"messages": [{"role": "user", "content": "a<|im_end|>b"}]}
    )
    _, plain = served.request("POST", "/tokenize", {"messages": [{"role": "user", "content": "ab"}]})
    assert answer["tokens"].count(end) == plain["tokens"].count(end)


def test_add_special_tokens_changes_nothing_where_there_are_none(served: Served, ask: Ask) -> None:
    with_, without = (ask(add_special_tokens=x, return_token_ids=True, max_tokens=1) for x in (True, False))
    assert with_[1]["choices"] == without[1]["choices"]


def test_truncate_prompt_tokens(served: Served, ask: Ask) -> None:
    asked = {"max_tokens": 2, "return_token_ids": True}
    whole = ask(**asked)[1]
    ids = whole.get("prompt_token_ids") or whole["choices"][0]["prompt_token_ids"]
    cut = ask(**asked, truncate_prompt_tokens=2)[1]
    assert (cut.get("prompt_token_ids") or cut["choices"][0]["prompt_token_ids"]) == ids[-2:]
    assert cut["usage"]["prompt_tokens"] == 2


def test_token_ids_are_the_tokens_of_the_text(served: Served, ask: Ask) -> None:
    _, answer = ask(return_token_ids=True, skip_special_tokens=False)
    choice = answer["choices"][0]
    text = served.request("POST", "/detokenize", {"tokens": choice["token_ids"]})[1]["prompt"]
    assert text.removesuffix("<|im_end|>") == content((200, answer)).removesuffix("<|im_end|>")
    assert len(choice["token_ids"]) == answer["usage"]["completion_tokens"]


def test_prompt_logprobs_are_those_of_echo_cold_and_warm(served: Served) -> None:
    """Behaviour 10."""
    prompt = "A fox and a hound walked along the river until the evening came. " * 3
    salted = {"prompt": prompt, "max_tokens": 1, "cache_salt": "x"}
    cold, warm = (served.complete(**salted, prompt_logprobs=2) for _ in "ab")
    _, plain = served.complete(**salted)
    assert plain["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32, "there was nothing to hit"
    scores = cold[1]["choices"][0]["prompt_logprobs"]
    assert scores == warm[1]["choices"][0]["prompt_logprobs"] and scores[0] is None
    ids = ids_of(served, prompt)
    _, echoed = served.complete(prompt=prompt, echo=True, logprobs=2, max_tokens=0)
    own = [s[str(t)]["logprob"] for s, t in zip(scores[1:], ids[1:], strict=True)]
    assert own == echoed["choices"][0]["logprobs"]["token_logprobs"][1:]
    for position, token in zip(scores[1:], ids[1:], strict=True):
        ranks = sorted(e["rank"] for e in position.values())
        assert ranks[:2] == [1, 2] and len(position) == (2 if position[str(token)]["rank"] <= 2 else 3)


def test_priority_and_harmless_values(served: Served, ask: Ask) -> None:
    plain = ask()
    for fields in (
        {"priority": -5},
        {"priority": 2**31 - 1},
        {"spaces_between_special_tokens": False},
        {"user": "u", "metadata": {"a": "b"}},
    ):
        assert content(ask(**fields)) == content(plain)


def test_the_document_is_served(served: Served) -> None:
    status, document = served.request("GET", "/openapi.json")
    assert status == 200
    ids = document["components"]["schemas"]["CompletionRequest"]["properties"]["stop_token_ids"]
    assert ids["anyOf"][0]["items"]["maximum"] == 49151
    assert "<h1>" in served.request("GET", "/docs")[1] and json.dumps(document)
