"""Templates and tokens, off the event loop: the tokenizer has its own few threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from octavo_gateway.protocol.errors import context_length_exceeded, from_engine

T = TypeVar("T")

_TOKENIZER_NICENESS = 10
_LARGE = 256 * 1024  # characters


THREADS = "octavo-text"  # how the names of all threads here begin


class _Pool:
    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"{THREADS}-{name}")
        self._large = asyncio.Lock()

    async def run(self, work: Callable[[], T], length: int) -> T:
        """The result. Who is cancelled leaves nothing that has not begun; what has begun counts until its end."""
        if length <= _LARGE:
            return await asyncio.wrap_future(self._threads.submit(work))
        loop = asyncio.get_running_loop()
        await self._large.acquire()

        def release(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._large.release)

        future = self._threads.submit(work)
        future.add_done_callback(release)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class TextWorkers:
    """Runs the tokenizer's work. A large prompt holds one thread and nobody's next token.

    Conversations have threads of their own: no other request waits for a template.
    """

    def __init__(self, threads: int) -> None:
        self._plain = _Pool(threads, "plain")
        self._chats = _Pool(threads, "chats")

    def warm(self, work: Callable[[], object]) -> None:
        """Do `work` once in a thread of low priority, from which the tokenizer's own threads inherit it.

        They then take what the engine leaves of the cores. The pool's threads keep theirs: they may hold the
        interpreter's lock.
        """

        def start() -> None:
            with contextlib.suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _TOKENIZER_NICENESS)
            work()

        thread = threading.Thread(target=start, name="octavo-tokenizer-start")
        thread.start()
        thread.join()

    async def run(self, work: Callable[[], T], length: int = 0, *, chat: bool = False) -> T:
        """The result of `work`; octavo's complaints become answers, `messages` at fault by default.

        `length`: characters that it tokenizes. Large texts go one at a time, so that another thread is left.
        """
        from octavo.errors import OctavoError

        try:
            return await (self._chats if chat else self._plain).run(work, length)
        except OctavoError as e:
            raise from_engine(e.code, e.param, str(e)) from None

    async def call(self, work: Callable[[], T]) -> T:
        """The result of `work`, whatever it raises."""
        return await self._plain.run(work, 0)

    def close(self) -> None:
        """Drop what has not begun."""
        self._plain.close()
        self._chats.close()


class PromptLength:
    """The window of the model, and the refusal of prompts that do not fit."""

    def __init__(self, max_model_len: int, longest_token_bytes: int, shortcut: bool) -> None:
        self.max_model_len = max_model_len
        self._longest = max(1, longest_token_bytes)
        self._shortcut = shortcut

    def check_bytes(self, num_bytes: int, param: str) -> None:
        """Refuse text that must have more tokens than the window, whatever they are, before tokenizing it."""
        self.check_least(-(-num_bytes // self._longest), param)

    def check_least(self, least: int, param: str) -> None:
        """Refuse an input that is known to have `least` tokens or more."""
        if self._shortcut and least > self.max_model_len:
            raise context_length_exceeded(self.max_model_len, f"the input has at least {least} tokens", param)

    def check_tokens(self, num_tokens: int, param: str) -> None:
        """A prompt must leave room for one token."""
        if num_tokens >= self.max_model_len:
            raise context_length_exceeded(
                self.max_model_len,
                f"the input has {num_tokens} tokens and at least 1 must remain for the answer",
                param,
            )
