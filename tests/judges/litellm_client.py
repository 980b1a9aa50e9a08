"""LiteLLM against a server: one line per check, run in the judges' environment by test_clients.py."""

import asyncio
import json
import os

import litellm

litellm.suppress_debug_info = True
BASE, MODEL = os.environ["JUDGED_URL"], os.environ["JUDGED_MODEL"]
HI = [{"role": "user", "content": "Hi"}]
LONG = [{"role": "user", "content": "x y " * 5000}]


def call(provider, **fields):
    return litellm.completion(
        model=f"{provider}/{MODEL}",
        api_base=BASE,
        api_key="any",
        messages=HI,
        max_tokens=6,
        temperature=0,
        **fields,
    )


def whole(provider):
    answer = call(provider)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 6
    assert isinstance(answer.usage.prompt_tokens_details.cached_tokens, int)
    return answer.choices[0].message.content


def streamed(provider):
    chunks = list(call(provider, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole(provider)
    assert [c.usage.completion_tokens for c in chunks if getattr(c, "usage", None)] == [6]
    rebuilt = litellm.stream_chunk_builder(chunks, messages=HI)
    assert rebuilt.choices[0].message.content == text


def logprobs(provider):
    content = call(provider, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(content) == 6 and len(content[0].top_logprobs) == 2


def asynchronous(provider):
    async def ask():
        return await asyncio.gather(
            *(
                litellm.acompletion(
                    model=f"{provider}/{MODEL}",
                    api_base=BASE,
                    api_key="any",
                    messages=HI,
                    max_tokens=6,
                    temperature=0,
                )
                for _ in range(8)
            )
        )

    assert {a.choices[0].message.content for a in asyncio.run(ask())} == {whole(provider)}


def too_long(provider):
    try:
        litellm.completion(
            model=f"{provider}/{MODEL}",
            api_base=BASE,
            api_key="any",
            messages=LONG,
        )
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("no ContextWindowExceededError")


def unknown_model(provider):
    try:
        litellm.completion(model=f"{provider}/nobody", api_base=BASE, api_key="any", messages=HI)
    except litellm.NotFoundError:
        return
    raise AssertionError("no NotFoundError")


def text_completion(provider):
    answer = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}", api_base=BASE, api_key="any", prompt="Hi", max_tokens=4
    )
    assert answer.choices[0].finish_reason == "length"


for check in (whole, streamed, logprobs, asynchronous, too_long, unknown_model, text_completion):
    for provider in ("openai", "hosted_vllm"):
        try:
            check(provider)
            problem = None
        except Exception as e:
            problem = f"{type(e).__name__}: {e}"[:400]
        print("CHECK", json.dumps([check.__name__, provider, problem]), flush=True)
