"""How the tokens of one request are chosen, under vLLM's names."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from octavo import checks
from octavo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from octavo import _engine
    from octavo.tokenizer import Tokenizer

MAX_TOKENS = 2**31 - 1


class RequestOutputKind(enum.Enum):
    """What each item that ``AsyncEngine.generate`` yields holds."""

    CUMULATIVE = 0  # everything so far
    DELTA = 1  # what is new since the last item
    FINAL_ONLY = 2  # one item at the end


@dataclass
class SamplingParams:
    """Sampling parameters of one request.

    Each value is checked when the object is made and again when the request is submitted; an
    ``InvalidArgumentError`` (a ``ValueError``) names the field, the value and the limit.

    Attributes:
        n: completions per prompt; only 1 in this version. ``best_of`` likewise.
        presence_penalty, frequency_penalty: -2 to 2, over the generated tokens.
        repetition_penalty: above 0 to 10, over prompt and generated tokens; 1 is off.
        temperature: 0 to 100; below 1e-5 the most likely token is taken (greedy).
        top_p: 0 to 1; 0 is greedy.
        top_k: 0 or -1 is off; above the vocabulary means all of it.
        min_p: 0 to 1, relative to the most likely token.
        seed: 0 to 2**64 - 1 (negative numbers count from the top); None draws fresh entropy per request.
        stop: strings that end the text; not part of it unless ``include_stop_str_in_output``.
        stop_token_ids: token ids that end it, beside the model's own end tokens.
        bad_words: strings that must not be generated.
        ignore_eos: do not stop at the model's end tokens.
        max_tokens: the most tokens to generate; None is what the window leaves.
        min_tokens: no end token before so many.
        logprobs: None, or for each generated token its logprob and those of the k most likely (0: only its own).
        prompt_logprobs: the same for the tokens of the prompt.
        detokenize: False gives token ids only.
        skip_special_tokens: leave special tokens out of the text.
        logit_bias: token id to a number from -100 to 100 added to its logit.
        allowed_token_ids: nothing but these is generated.
        truncate_prompt_tokens: keep only the last k tokens of the prompt.
        output_kind: what ``AsyncEngine.generate`` yields.
    """

    n: int = 1
    best_of: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    truncate_prompt_tokens: int | None = None
    output_kind: RequestOutputKind = field(default=RequestOutputKind.CUMULATIVE)
    logits_processors: Any = None
    structured_outputs: Any = None
    guided_decoding: Any = None
    extra_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.check()

    @property
    def stop_strings(self) -> list[str]:
        """``stop`` as a list."""
        return checks.strings("stop", self.stop)

    @property
    def greedy(self) -> bool:
        return self.temperature < 1e-5 or self.top_p == 0.0 or self.top_k == 1

    def check(self) -> None:
        """Raise ``InvalidArgumentError`` for the first field that is out of range or not supported."""
        for name in ("n", "best_of"):
            value = getattr(self, name)
            if value is not None and checks.integer(name, value, 1, 2**31 - 1) != 1:
                raise InvalidArgumentError(
                    f"{name} must be 1 in this version of octavo, got {value}", param=name
                )
        checks.number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        checks.number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if checks.number("repetition_penalty", self.repetition_penalty, 0.0, 10.0) == 0.0:
            raise checks.invalid("repetition_penalty", self.repetition_penalty, "above 0")
        checks.number("temperature", self.temperature, 0.0, 100.0)
        checks.number("top_p", self.top_p, 0.0, 1.0)
        checks.integer("top_k", self.top_k, -1, 2**63 - 1)
        checks.number("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            checks.integer("seed", self.seed, -(2**63), 2**64 - 1)
        self._check_lengths()
        self._check_lists()
        for name in ("ignore_eos", "detokenize", "skip_special_tokens", "include_stop_str_in_output"):
            checks.boolean(name, getattr(self, name))
        if self.stop_strings and not self.detokenize:
            raise InvalidArgumentError("stop strings need detokenize=True, got False", param="stop")
        if not isinstance(self.output_kind, RequestOutputKind):
            raise checks.invalid("output_kind", self.output_kind, "a RequestOutputKind")
        self._check_unsupported()

    def _check_lengths(self) -> None:
        if self.max_tokens is not None:
            checks.integer("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        checks.integer("min_tokens", self.min_tokens, 0, MAX_TOKENS)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise checks.invalid("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), 0, MAX_TOKENS)
        if self.truncate_prompt_tokens is not None:
            checks.integer("truncate_prompt_tokens", self.truncate_prompt_tokens, 1, MAX_TOKENS)

    def _check_lists(self) -> None:
        checks.strings("stop", self.stop)
        checks.strings("bad_words", self.bad_words)
        for name in ("stop_token_ids", "allowed_token_ids"):
            if getattr(self, name) is not None:
                checks.token_ids(name, getattr(self, name))
        if self.allowed_token_ids is not None and not list(self.allowed_token_ids):
            raise checks.invalid("allowed_token_ids", self.allowed_token_ids, "None or at least one token id")
        if self.logit_bias is not None:
            if not isinstance(self.logit_bias, dict):
                raise checks.invalid("logit_bias", self.logit_bias, "a map from token id to bias")
            checks.token_ids("logit_bias", self.logit_bias)
            for bias in self.logit_bias.values():
                checks.number("logit_bias", bias, -100.0, 100.0)

    def _check_unsupported(self) -> None:
        reasons = {
            "logits_processors": "Python on the path of every token; use logit_bias, allowed_token_ids or bad_words",
            "structured_outputs": "structured output, which this version does not have",
            "guided_decoding": "structured output, which this version does not have",
        }
        for name, reason in reasons.items():
            if getattr(self, name):
                raise InvalidArgumentError(f"{name} is not supported: it asks for {reason}", param=name)
        if self.extra_args:
            raise InvalidArgumentError(
                f"extra_args is not supported, got keys {sorted(map(str, self.extra_args))}",
                param="extra_args",
            )

    def clone(self) -> SamplingParams:
        """A copy of its own."""
        return SamplingParams(**{f.name: getattr(self, f.name) for f in fields(self)})

    def to_engine(
        self,
        *,
        vocab_size: int,
        eos_token_ids: Sequence[int],
        tokenizer: Tokenizer | None,
        max_new_tokens: int,
    ) -> _engine.SamplingParams:
        """The native parameters, checked again and against the model.

        Args:
            vocab_size: token ids must lie below it.
            eos_token_ids: the model's end tokens.
            tokenizer: needed for ``bad_words`` only.
            max_new_tokens: what the window leaves; ``max_tokens`` is clamped to it, and None stands for it.
        """
        from octavo import _engine

        self.check()
        out = _engine.SamplingParams()
        out.temperature = float(self.temperature)
        out.top_p = float(self.top_p)
        out.top_k = 0 if self.top_k < 1 else min(self.top_k, vocab_size)
        out.min_p = float(self.min_p)
        out.repetition_penalty = float(self.repetition_penalty)
        out.presence_penalty = float(self.presence_penalty)
        out.frequency_penalty = float(self.frequency_penalty)
        out.seed = secrets.randbits(64) if self.seed is None else self.seed % 2**64
        out.max_tokens = max_new_tokens if self.max_tokens is None else min(self.max_tokens, max_new_tokens)
        out.min_tokens = min(self.min_tokens, out.max_tokens)
        out.logprobs = -1 if self.logprobs is None else min(self.logprobs, vocab_size)
        out.prompt_logprobs = -1 if self.prompt_logprobs is None else min(self.prompt_logprobs, vocab_size)
        stop_ids = checks.token_ids("stop_token_ids", self.stop_token_ids or [], vocab_size)
        if not self.ignore_eos:
            stop_ids += [token for token in eos_token_ids if 0 <= token < vocab_size]
        out.stop_token_ids = sorted(set(stop_ids))
        out.allowed_token_ids = checks.token_ids(
            "allowed_token_ids", self.allowed_token_ids or [], vocab_size
        )
        if self.logit_bias:
            checks.token_ids("logit_bias", self.logit_bias, vocab_size)
            out.logit_bias = [(token, float(bias)) for token, bias in self.logit_bias.items()]
        out.stop = self.stop_strings
        out.bad_words = self._bad_word_ids(tokenizer)
        out.include_stop_str_in_output = self.include_stop_str_in_output
        out.skip_special_tokens = self.skip_special_tokens
        out.detokenize = self.detokenize
        return out

    def _bad_word_ids(self, tokenizer: Tokenizer | None) -> list[list[int]]:
        """Each word as it is tokenized at the start of a text and after a space."""
        words = checks.strings("bad_words", self.bad_words)
        if not words:
            return []
        if tokenizer is None:
            raise InvalidArgumentError(
                "bad_words need a tokenizer, but this model has none", param="bad_words"
            )
        sequences: list[list[int]] = []
        for word in words:
            bare = word.lstrip() or word
            for text in (bare, " " + bare):
                ids = tokenizer.encode(text, add_special_tokens=False)
                if ids and ids not in sequences:
                    sequences.append(ids)
        return sequences
