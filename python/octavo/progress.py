"""The progress bar of ``LLM.generate``."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from octavo.outputs import RequestOutput


class Progress:
    """Counts finished requests and shows tokens per second.

    Args:
        total: how many requests there are.
        use_tqdm: False shows nothing; True makes tqdm's bar; a callable makes the bar in its place.
    """

    def __init__(self, total: int, use_tqdm: bool | Callable[..., Any]) -> None:
        self._bar: Any = None
        self._start = time.monotonic()
        self._prompt_tokens = self._generated_tokens = 0
        if use_tqdm and total:
            make = _tqdm() if use_tqdm is True else use_tqdm
            self._bar = make(total=total, desc="Prompts", unit="prompt", dynamic_ncols=True)

    def finished(self, output: RequestOutput) -> None:
        """One more request has ended."""
        self._prompt_tokens += len(output.prompt_token_ids)
        self._generated_tokens += sum(len(choice.token_ids) for choice in output.outputs)
        if self._bar is not None:
            seconds = max(time.monotonic() - self._start, 1e-9)
            self._bar.set_postfix_str(
                f"{self._prompt_tokens / seconds:.0f} prompt tokens/s, {self._generated_tokens / seconds:.0f} tokens/s",
                refresh=False,
            )
            self._bar.update(1)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _tqdm() -> Any:
    from tqdm.auto import tqdm

    return tqdm
