"""How the tokens of one request are chosen, under vLLM's names."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from octavo import checks
from octavo.errors import InvalidArgumentError
from octavo.structured.params import StructuredOutputsParams

if TYPE_CHECKING:
    from octavo import _engine
    from octavo.structured.compiler import CompiledGrammar
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
    ``InvalidArgumentError`` (a ``ValueError``) names the field, the value and the limit. NumPy's numbers are taken as
    Python's.

    Attributes:
        n: completions per prompt. They share the prompt's cache; completion i draws its own random numbers.
        best_of: completions that are computed, of which the ``n`` with the highest cumulative logprob are returned;
            None is n. What is returned is known at the end only, so it cannot be streamed.
        use_beam_search: return the n best hypotheses of a beam search, best first, instead of sampling. It goes by
            the model's own probabilities: parameters that change these must be left alone. Nor can it be streamed.
        beam_width: how many beams; None is ``best_of`` or ``n``.
        length_penalty: a hypothesis scores its cumulative logprob divided by its length to this power, -100 to 100.
        early_stopping: when to stop once there are as many finished hypotheses as beams: True at once, False when
            no beam looks better at its present length, "never" when none could be better at any length.
        presence_penalty, frequency_penalty: -2 to 2, over the generated tokens.
        repetition_penalty: above 0 to 10, over prompt and generated tokens; 1 is off.
        temperature: 0 to 100; below 1e-5 the most likely token is taken (greedy).
        top_p: 0 to 1; 0 is greedy.
        top_k: 0 or -1 is off; above the vocabulary means all of it.
        min_p: 0 to 1, relative to the most likely token.
        seed: 0 to 2**64 - 1 (negative numbers count from the top); None draws fresh entropy per request.
        stop: strings that end the text; not part of it unless ``include_stop_str_in_output``.
        stop_pauses: pairs of marks between which ``stop`` is not looked for, such as ``("<think>", "</think>")``; with
            an empty second mark to the end of the text.
        stop_paused: the output begins within the first of them.
        stop_token_ids: token ids that end it, beside the model's own end tokens.
        bad_words: strings that must not be generated.
        ignore_eos: do not stop at the model's end tokens.
        max_tokens: the most tokens to generate; None is what the window leaves. A request that would outgrow the whole
            cache gets what it holds: n completions share it, so each may be shorter than one alone.
        min_tokens: no end token before so many.
        logprobs: None, or for each generated token its logprob and those of the k most likely (0: only its own).
        prompt_logprobs: the same for the tokens of the prompt.
        detokenize: False gives token ids only.
        skip_special_tokens: leave special tokens out of the text.
        logit_bias: token id to a number from -100 to 100 added to its logit.
        allowed_token_ids: nothing but these is generated.
        truncate_prompt_tokens: keep only the last k tokens of the prompt.
        output_kind: what ``AsyncEngine.generate`` yields.
        structured_outputs: the form of the output: ``StructuredOutputsParams`` or a map of its fields.
        grammar: the same, compiled already for this model (``octavo.structured.CompiledGrammar``).
    """

    n: int = 1
    best_of: int | None = None
    use_beam_search: bool = False
    beam_width: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_pauses: Sequence[tuple[str, str]] | None = None
    stop_paused: bool = False
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
    structured_outputs: StructuredOutputsParams | Mapping[str, Any] | None = None
    grammar: CompiledGrammar | None = None
    guided_decoding: Any = None
    extra_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.check()

    @property
    def stop_strings(self) -> list[str]:
        """``stop`` as a list."""
        return checks.strings("stop", self.stop)

    @property
    def width(self) -> int:
        """The sequences that are computed side by side."""
        width = self.beam_width if self.use_beam_search else None
        return width or self.best_of or self.n

    @property
    def streams(self) -> bool:
        """Whether the completions are known token by token, not only when all have ended."""
        return not self.use_beam_search and self.width == self.n

    @property
    def greedy(self) -> bool:
        return self.temperature < 1e-5 or self.top_p == 0.0 or self.top_k == 1

    def check(self) -> None:
        """Raise ``InvalidArgumentError`` for the first field that is out of range or not supported."""
        self._check_sequences()
        self.presence_penalty = checks.number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        self.frequency_penalty = checks.number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        self.repetition_penalty = checks.number("repetition_penalty", self.repetition_penalty, 0.0, 10.0)
        if self.repetition_penalty == 0.0:
            raise checks.invalid("repetition_penalty", self.repetition_penalty, "above 0")
        self.temperature = checks.number("temperature", self.temperature, 0.0, 100.0)
        self.top_p = checks.number("top_p", self.top_p, 0.0, 1.0)
        self.top_k = checks.integer("top_k", self.top_k, -1, 2**63 - 1)
        self.min_p = checks.number("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            self.seed = checks.integer("seed", self.seed, -(2**63), 2**64 - 1)
        self._check_lengths()
        self._check_lists()
        for name in ("ignore_eos", "detokenize", "skip_special_tokens", "include_stop_str_in_output"):
            checks.boolean(name, getattr(self, name))
        if self.stop_strings and not self.detokenize:
            raise InvalidArgumentError("stop strings need detokenize=True, got False", param="stop")
        if not isinstance(self.output_kind, RequestOutputKind):
            raise checks.invalid("output_kind", self.output_kind, "a RequestOutputKind")
        if self.output_kind is RequestOutputKind.DELTA and not self.streams:
            name = "use_beam_search" if self.use_beam_search else "best_of"
            raise InvalidArgumentError(
                f"{name} cannot be streamed (output_kind DELTA): what is returned is known at the end",
                param=name,
            )
        self._check_structure()
        self._check_unsupported()

    def _check_structure(self) -> None:
        if self.structured_outputs is not None:
            self.structured_outputs = StructuredOutputsParams.of(self.structured_outputs)
        for name in ("structured_outputs", "grammar"):
            if getattr(self, name) is not None and self.use_beam_search:
                raise InvalidArgumentError(f"{name} cannot be used with use_beam_search", param=name)
        if self.grammar is not None and self.structured_outputs is not None:
            raise InvalidArgumentError(
                "grammar and structured_outputs exclude each other", param="structured_outputs"
            )

    def _check_sequences(self) -> None:
        self.n = checks.integer("n", self.n, 1, MAX_TOKENS)
        for name in ("best_of", "beam_width"):
            if getattr(self, name) is not None:
                setattr(self, name, checks.integer(name, getattr(self, name), 1, MAX_TOKENS))
        if self.best_of is not None and self.best_of < self.n:
            raise checks.invalid("best_of", self.best_of, f"at least n ({self.n})")
        checks.boolean("use_beam_search", self.use_beam_search)
        self.length_penalty = checks.number("length_penalty", self.length_penalty, -100.0, 100.0)
        if self.early_stopping != "never":
            checks.boolean("early_stopping", self.early_stopping)
        if self.use_beam_search:
            self._check_beams()
            return
        for name, idle in (("beam_width", None), ("length_penalty", 1.0), ("early_stopping", False)):
            if getattr(self, name) != idle:
                raise InvalidArgumentError(
                    f"{name} has no effect without use_beam_search=True, got {getattr(self, name)!r}",
                    param=name,
                )

    def _check_beams(self) -> None:
        if self.n > self.width:
            raise checks.invalid("n", self.n, f"at most beam_width ({self.width})")
        if self.beam_width is not None and self.best_of not in (None, self.beam_width):
            raise checks.invalid("best_of", self.best_of, f"None or beam_width ({self.beam_width})")
        neutral: dict[str, tuple[Any, ...]] = {
            "temperature": (0, 1),
            "top_p": (1,),
            "top_k": (0, -1),
            "min_p": (0,),
            "repetition_penalty": (1,),
            "presence_penalty": (0,),
            "frequency_penalty": (0,),
            "min_tokens": (0,),
            "logprobs": (None,),
        }
        for name, values in neutral.items():
            if getattr(self, name) not in values:
                raise InvalidArgumentError(
                    f"{name} cannot be used with use_beam_search, got {getattr(self, name)!r}", param=name
                )
        for name in ("logit_bias", "allowed_token_ids", "bad_words", "stop"):
            if getattr(self, name):
                raise InvalidArgumentError(f"{name} cannot be used with use_beam_search", param=name)

    def _check_lengths(self) -> None:
        if self.max_tokens is not None:
            self.max_tokens = checks.integer("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        self.min_tokens = checks.integer("min_tokens", self.min_tokens, 0, MAX_TOKENS)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise checks.invalid("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                setattr(self, name, checks.integer(name, getattr(self, name), 0, MAX_TOKENS))
        if self.truncate_prompt_tokens is not None:
            self.truncate_prompt_tokens = checks.integer(
                "truncate_prompt_tokens", self.truncate_prompt_tokens, 1, MAX_TOKENS
            )

    def _check_pauses(self) -> None:
        for pair in self.stop_pauses or ():
            if len(pair) != 2 or not all(isinstance(mark, str) for mark in pair) or not pair[0]:
                raise checks.invalid("stop_pauses", pair, "pairs of strings, the first not empty")
            for mark in pair:
                checks.unicode_text("stop_pauses", mark)
        if checks.boolean("stop_paused", self.stop_paused) and not self.stop_pauses:
            raise checks.invalid("stop_paused", self.stop_paused, "False without stop_pauses")

    def _check_lists(self) -> None:
        checks.strings("stop", self.stop)
        self._check_pauses()
        checks.strings("bad_words", self.bad_words)
        for name in ("stop_token_ids", "allowed_token_ids"):
            if getattr(self, name) is not None:
                setattr(self, name, checks.token_ids(name, getattr(self, name)))
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
            "guided_decoding": "structured output by an older name; use structured_outputs",
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

    def with_grammar(self, grammar: CompiledGrammar) -> SamplingParams:
        """A copy whose output has the form of ``grammar``."""
        return replace(self, structured_outputs=None, grammar=grammar)

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
        out.n = self.n
        if self.use_beam_search:
            out.beam_width = self.width
            out.length_penalty = float(self.length_penalty)
            stopping = _engine.EarlyStopping
            if self.early_stopping == "never":
                out.early_stopping = stopping.NEVER
            else:
                out.early_stopping = stopping.YES if self.early_stopping else stopping.NO
        else:
            out.best_of = self.width
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
            ids = checks.token_ids("logit_bias", self.logit_bias, vocab_size)
            out.logit_bias = list(zip(ids, map(float, self.logit_bias.values()), strict=True))
        out.stop = self.stop_strings
        out.stop_pauses = [(opening, closing) for opening, closing in self.stop_pauses or ()]
        out.stop_paused = self.stop_paused
        out.bad_words = self._bad_word_ids(tokenizer)
        out.include_stop_str_in_output = self.include_stop_str_in_output
        out.skip_special_tokens = self.skip_special_tokens
        out.detokenize = self.detokenize
        out.grammar = None if self.grammar is None else self.grammar.native
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
