"""Which datasets there are, and how a load is made of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from octavo.errors import InvalidArgumentError
from octavo_bench.client import Shot
from octavo_bench.datasets import files, synthetic
from octavo_bench.datasets.prompts import FIRST_ID, PromptMaker
from octavo_bench.traces.read import estimate_tokens

TRACES = {"azure": "azure", "burstgpt": "burstgpt", "mooncake": "mooncake", "timed_trace": "lengths"}
NAMES = ("random", "prefix_repetition", "multi_turn", "sharegpt", "custom", *TRACES)


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """What to ask for.

    Attributes:
        name: one of ``NAMES``.
        path: the file of those that are read.
        input_len, output_len: tokens of the synthetic ones; ``output_len`` also replaces a file's where given.
        range_ratio: lengths are uniform in ``[length * (1 - r), length * (1 + r)]``.
        prefix_len: tokens that all prompts (or those of one group) begin with.
        num_prefixes: groups of ``prefix_repetition``.
        zipf: exponent of the groups' popularity; 0: all alike.
        turns, think_s: requests of a conversation of ``multi_turn`` and the pause between them.
        max_input_len, max_output_len: longer requests of a file are left out; longer outputs are cut.
        vocab_size: token ids are drawn below this.
        text: send words, not ids.
        ignore_eos: go on to the length asked for; None: for synthetic datasets and traces.
        oversample: repeat a file that holds fewer requests than wanted.
        count_tokens: length of a text.
    """

    name: str = "random"
    path: str | None = None
    input_len: int = 1024
    output_len: int | None = None
    range_ratio: float = 0.0
    prefix_len: int = 0
    num_prefixes: int = 10
    zipf: float = 0.0
    turns: int = 4
    think_s: float = 0.0
    max_input_len: int | None = None
    max_output_len: int | None = None
    vocab_size: int = 10_000
    text: bool = False
    oversample: bool = True
    ignore_eos: bool | None = None
    count_tokens: Callable[[str], int] = estimate_tokens

    def check(self) -> None:
        """Raises ``InvalidArgumentError`` for what cannot be."""
        if self.name not in NAMES:
            raise InvalidArgumentError(f"dataset_name {self.name!r}: there are {', '.join(NAMES)}")
        if self.needs_file and not self.path:
            raise InvalidArgumentError(
                f"dataset_path is needed for dataset_name {self.name}", param="dataset_path"
            )
        if not self.needs_file and self.path:
            raise InvalidArgumentError(
                f"dataset_path is not read for dataset_name {self.name}", param="dataset_path"
            )
        for name, value, least in (
            ("input_len", self.input_len, 1),
            ("output_len", self.output_len, 1),
            ("prefix_len of what is shared", self.prefix_len, 0),
            ("prefix_repetition_num_prefixes", self.num_prefixes, 1),
            ("multi_turn_turns", self.turns, 1),
            ("max_input_len", self.max_input_len, 1),
            ("max_output_len", self.max_output_len, 1),
            ("vocab_size", self.vocab_size, FIRST_ID + 1),
        ):
            if value is not None and value < least:
                raise InvalidArgumentError(f"{name} {value}: at least {least}", param=name)
        if not 0 <= self.range_ratio < 1:
            raise InvalidArgumentError(
                f"random_range_ratio {self.range_ratio}: in [0, 1)", param="range_ratio"
            )
        for name, number in (("prefix_repetition_zipf", self.zipf), ("multi_turn_think_s", self.think_s)):
            if not 0 <= number < 1e6:
                raise InvalidArgumentError(f"{name} {number}: from 0 to 1e6", param=name)

    @property
    def needs_file(self) -> bool:
        return self.name in ("sharegpt", "custom", *TRACES)

    @property
    def sends_text(self) -> bool:
        """Whether prompts are text rather than token ids."""
        return self.text or self.name in ("sharegpt", "custom")

    @property
    def timed(self) -> bool:
        """Whether the file says when requests arrive."""
        return self.name in TRACES


def make_shots(options: DatasetOptions, count: int, seed: int | Sequence[int]) -> list[Shot]:
    """``count`` shots; ``due`` is the time of arrival where the dataset has one, else 0.

    The same seed makes the same shots. A trace that is shorter gives fewer, any other file is repeated.
    """
    options.check()
    maker = PromptMaker(seed, text=options.text, vocab_size=options.vocab_size)
    shots = _make(options, count, maker)
    exact = options.name != "custom" and (options.name != "sharegpt" or options.output_len is not None)
    if exact if options.ignore_eos is None else options.ignore_eos:
        shots = [replace(shot, extra={"ignore_eos": True}) for shot in shots]
    return shots


def _make(options: DatasetOptions, count: int, maker: PromptMaker) -> list[Shot]:
    if options.name == "random":
        return synthetic.random_prompts(options, count, maker)
    if options.name == "prefix_repetition":
        return synthetic.prefix_groups(options, count, maker)
    if options.name == "multi_turn":
        return synthetic.conversations(options, count, maker)
    if options.name == "custom":
        return files.custom(options, count, maker)
    return files.trace(options, count, maker, TRACES.get(options.name, options.name))
