"""Tokenizing a long text lets the program's other threads go on, and gives the ids that a short cut would give."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.chat import ChatTemplate
from octavo.tokenizer.control import matches

TEXT = "The quick brown fox jumps over the lazy dog, and then 12 more. 世界 " * 20_000


def share_of_a_bystander(work: Callable[[], Any]) -> float:
    """The longest time that another thread could not run, as a share of the time that `work` took."""
    longest, over = 0.0, threading.Event()

    def bystander() -> None:
        nonlocal longest
        last = time.monotonic()
        while not over.is_set():
            time.sleep(0.001)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    thread = threading.Thread(target=bystander)
    thread.start()
    started = time.monotonic()
    work()
    took = time.monotonic() - started
    over.set()
    thread.join()
    return longest / took


@pytest.mark.unsanitized("measures time")
@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("text", "chat")), "chat with a control token"],
)
def test_other_threads_run_meanwhile(tokenizer: Any, kind: str) -> None:
    template = ChatTemplate(tokenizer)
    text = TEXT + ("<|im_end|>" if "control" in kind else "")
    messages = [{"role": "user", "content": text}]
    template.encode([{"role": "user", "content": "<|im_end|>"}])  # makes what is made once
    work = (lambda: tokenizer.encode(text)) if kind == "text" else (lambda: template.encode(messages))
    assert any(share_of_a_bystander(work) < 0.5 for _ in range(3))


@pytest.mark.parametrize("special", [True, False])
def test_a_long_text_gives_the_ids_of_the_library(tokenizer: Any, special: bool) -> None:
    text = TEXT[:60_000]
    assert tokenizer.encode(text, special) == tokenizer.backend.encode(text, add_special_tokens=special).ids


@settings(max_examples=300, deadline=None)
@given(st.text("<|ab>[", max_size=60), st.integers(6, 12))
def test_matches_in_windows_are_those_of_the_whole(text: str, window: int) -> None:
    pattern = re.compile(r"\[(?:<\|a>|<a)|<\|a>|<a|\[")
    found = [m.span() for m in matches(pattern, text, 5, window)]
    assert found == [m.span() for m in pattern.finditer(text)]
