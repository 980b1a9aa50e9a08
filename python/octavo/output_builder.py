"""From the engine's deltas to the outputs that users see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.errors import OctavoError, from_engine
from octavo.outputs import (
    CompletionOutput,
    Logprob,
    PositionLogprobs,
    RequestMetrics,
    RequestOrigin,
    RequestOutput,
)

if TYPE_CHECKING:
    from octavo import _engine
    from octavo.loading import LoadedModel
    from octavo.sampling_params import SamplingParams


class OutputBuilder:
    """Collects the deltas of one request.

    Attributes:
        finished: every choice has ended.
        error: what went wrong in the engine, None otherwise.
    """

    def __init__(
        self,
        model: LoadedModel,
        request_id: str,
        prompt: str | None,
        ids: list[int],
        params: SamplingParams,
        engine_id: int,
    ) -> None:
        self._tokenizer = model.tokenizer
        self._end_tokens = set(model.eos_token_ids) - set(params.stop_token_ids or ())
        self._output = RequestOutput(
            request_id, prompt, ids, outputs=[CompletionOutput(i) for i in range(params.n)]
        )
        generated = [choice.token_ids for choice in self._output.outputs]
        self._output.origin = RequestOrigin(engine_id, params, generated)
        # Tokens and characters of each choice that take_new has handed out; None for what has ended there.
        self._taken: list[tuple[int, int] | None] = [(0, 0)] * params.n
        self.error: OctavoError | None = None

    @property
    def finished(self) -> bool:
        return self._output.finished

    @property
    def num_generated(self) -> int:
        return sum(len(choice.token_ids) for choice in self._output.outputs)

    def add(self, delta: _engine.Delta) -> None:
        """Take in what one step released."""
        out, choice = self._output, self._output.outputs[delta.choice]
        choice.token_ids += delta.token_ids
        choice.text += delta.text
        if (logprobs := delta.logprobs) is not None:
            choice.logprobs = [*(choice.logprobs or []), *map(self._position, logprobs)]
            choice.cumulative_logprob = (choice.cumulative_logprob or 0.0) + sum(p[1] for p in logprobs)
        if delta.cumulative_logprob is not None:
            choice.cumulative_logprob, choice.score = delta.cumulative_logprob, delta.score
        if (prompt_logprobs := delta.prompt_logprobs) is not None:
            out.prompt_logprobs = [None if p is None else self._position(p) for p in prompt_logprobs]
        out.num_cached_tokens = delta.cached_tokens
        out.metrics = RequestMetrics(delta.arrival, delta.scheduled, delta.first_token, delta.last_token)
        if delta.finish is not None:
            choice.finish_reason = delta.finish
            choice.stop_reason = None if delta.stop_reason in self._end_tokens else delta.stop_reason
            if delta.error is not None:
                self.error = from_engine(*delta.error)
            out.finished = all(c.finish_reason is not None for c in out.outputs)

    def output(self) -> RequestOutput:
        """Everything so far. The object goes on changing with later deltas."""
        return self._output

    def snapshot(self) -> RequestOutput:
        """Everything so far, in an object of its own."""
        return self._copy([(0, 0)] * len(self._taken))

    def take_new(self) -> RequestOutput:
        """What has come since the last call, of the choices that had not ended by then."""
        out = self._copy(self._taken)
        self._taken = [
            None if c.finished() else (len(c.token_ids), len(c.text)) for c in self._output.outputs
        ]
        return out

    def _copy(self, starts: Sequence[tuple[int, int] | None]) -> RequestOutput:
        out = self._output
        choices = [
            _from(choice, *start)
            for choice, start in zip(out.outputs, starts, strict=True)
            if start is not None
        ]
        return RequestOutput(
            request_id=out.request_id,
            prompt=out.prompt,
            prompt_token_ids=out.prompt_token_ids,
            prompt_logprobs=out.prompt_logprobs,
            outputs=choices,
            finished=out.finished,
            metrics=out.metrics,
            num_cached_tokens=out.num_cached_tokens,
            origin=out.origin,
        )

    def _position(self, entry: tuple[int, float, int, list[tuple[int, float, int]]]) -> PositionLogprobs:
        token, logprob, rank, top = entry
        return {t: Logprob(value, place, self._text(t)) for t, value, place in [(token, logprob, rank), *top]}

    def _text(self, token: int) -> str | None:
        return None if self._tokenizer is None else self._tokenizer.token_text(token)


def _from(choice: CompletionOutput, tokens: int, chars: int) -> CompletionOutput:
    """A copy without the first tokens and characters."""
    return CompletionOutput(
        index=choice.index,
        text=choice.text[chars:],
        token_ids=choice.token_ids[tokens:],
        cumulative_logprob=choice.cumulative_logprob,
        logprobs=None if choice.logprobs is None else choice.logprobs[tokens:],
        score=choice.score,
        finish_reason=choice.finish_reason,
        stop_reason=choice.stop_reason,
    )
