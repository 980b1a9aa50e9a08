"""One conversation with a model on a terminal: text as it is generated, Ctrl-C stops the answer."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from types import TracebackType

from octavo.engine_args import EngineArgs
from octavo.errors import from_engine
from octavo.loading import LoadedModel, load
from octavo.sampling_params import SamplingParams

_WAIT_MS = 100  # a signal is noticed between waits


class Session:
    """A loaded model that answers one request at a time.

    Attributes:
        model: the model.
        finish: how the last answer ended.
        generated, cached: tokens of the last answer, and of its prompt those that came from the cache.
    """

    def __init__(self, args: EngineArgs) -> None:
        self.model: LoadedModel = load(args)
        self._channel = self.model.engine.open_channel()
        self.finish: str | None = None
        self.generated = self.cached = 0

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        return self.model.prompt_ids(self.model.require_tokenizer("prompts as text").encode(text))

    def stream(self, ids: Sequence[int], params: SamplingParams) -> Generator[str, None, None]:
        """The answer, piece by piece. An interrupt ends the request and is raised again."""
        request = self.model.submit(ids, params, self._channel)
        self.finish, self.generated, self.cached = None, 0, 0
        try:
            while self.finish is None:
                with self.model.waiting():
                    self._channel.wait(_WAIT_MS)
                for delta in self._channel.drain():
                    self.finish = delta.finish
                    self.generated += len(delta.token_ids)
                    self.cached = delta.cached_tokens
                    if delta.text:
                        yield delta.text
                    if delta.error is not None:
                        raise from_engine(*delta.error)
        finally:
            self._end(request)

    def _end(self, request: int) -> None:
        if self.finish is not None or not self.model.is_alive:
            return
        self.model.engine.cancel(request)
        while self.finish is None and self.model.is_alive:
            self._channel.wait(_WAIT_MS)
            for delta in self._channel.drain():
                self.finish = delta.finish

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.model.shutdown()
