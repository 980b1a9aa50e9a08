"""What the API layer needs of an engine: token ids in, deltas out. `octavo.AsyncEngine` fits behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from octavo.tool_prompt import HERMES, CallForm

if TYPE_CHECKING:
    from octavo import SamplingParams
    from octavo.structured import CompiledGrammar, GrammarSpec

# (token, logprob, rank) of the k best at one position, best first.
TopEntries = Sequence[tuple[int, float, int]]
# (token, logprob, rank, k best): the chosen token of one position.
PositionLogprobs = tuple[int, float, int, TopEntries]


class Delta(Protocol):
    """What one choice of a request released in one step."""

    @property
    def choice(self) -> int: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def text(self) -> str: ...
    @property
    def logprobs(self) -> Sequence[PositionLogprobs] | None: ...
    @property
    def prompt_logprobs(self) -> Sequence[PositionLogprobs | None] | None: ...
    @property
    def finish(self) -> str | None: ...
    @property
    def stop_reason(self) -> int | str | None: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def scheduled(self) -> float: ...
    @property
    def first_token(self) -> float: ...
    @property
    def last_token(self) -> float: ...
    @property
    def error(self) -> tuple[str, str, str] | None: ...
    @property
    def sent(self) -> bool:
        """Its text was written by the engine itself; see TokenStream.send_directly."""
        ...


class TokenStream(Protocol):
    """One submitted request."""

    @property
    def id(self) -> int:
        """The engine's number for the request."""
        ...

    async def next(self) -> Sequence[Delta]:
        """Every delta that waits, at least one. Not called again once each choice has finished."""
        ...

    @property
    def backlog(self) -> int:
        """How many deltas wait for `next`."""
        ...

    def cancel(self) -> None:
        """Give the request up; its blocks are free within a step. Harmless once it has ended."""
        ...

    def send_directly(self, fd: int, head: bytes, tail: bytes, write_rest: Callable[[bytes], None]) -> bool:
        """Write each further text to a socket without anybody's help; False where that is not possible now.

        One chunk of HTTP/1.1 each: `head`, the text as a JSON string without quotes, `tail`. What the socket does not
        take at once goes to `write_rest`, and that ends it.
        """
        ...

    def take_back(self) -> float | None:
        """End that. When a text was written last, on the clock of time.monotonic(); None where it had ended."""
        ...


class Tokenizer(Protocol):
    """Text to ids and back. Its methods are called from several threads at once."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def longest_token_bytes(self) -> int: ...
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def control_token(self, text: str) -> int | None:
        """The control token that is written so; None where there is none."""
        ...

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        add_special_tokens: bool,
        template_kwargs: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] = (),
        call_form: CallForm = HERMES,
    ) -> list[int]:
        """The ids of a conversation as the model's template renders it.

        A template that knows no tools gets them as text, with calls in `call_form`.
        """
        ...


@dataclass(frozen=True)
class ModelInfo:
    """The loaded model, as its users see it."""

    root: str  # what the operator named: a path, a hub id, the built-in default
    max_model_len: int
    # The model's own sampling defaults, as SamplingParams names them.
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    engine_info: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str = ""  # its source; tells how the model writes calls and thoughts
    summary: str = ""  # what is loaded and what it runs on, for the operator


class DecisionReport(Protocol):
    """A scheduler's last decisions in a file, for who wants to know what a process did that died."""

    def write(self) -> None:
        """Bring the file up to date; a fatal signal does so, too."""
        ...


class Engine(Protocol):
    """A loaded model that takes requests."""

    @property
    def model(self) -> ModelInfo: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        namespace: int,
        priority: int,
        tenant: int = 0,
        shared_tokens: int = 0,
    ) -> TokenStream:
        """Hand a request to the engine; all namespaces share what is cached of its first `shared_tokens` tokens.

        Raises octavo.errors.RefusedError when it is not accepted.
        """
        ...

    def new_token_limit(self, prompt: int, sequences: int) -> int:
        """The most tokens that each of so many sequences may have after a prompt of so many."""
        ...

    async def compile(self, spec: GrammarSpec, tenant: int = 0) -> CompiledGrammar:
        """A grammar that requests can carry; tenants take turns.

        Raises octavo.errors.InvalidArgumentError where it cannot be honoured.
        """
        ...

    def stats(self) -> Mapping[str, Any]: ...
    async def snapshot(self) -> Mapping[str, Any]:
        """What the cache holds and who waits; comes after the step under way."""
        ...

    async def audit(self) -> None:
        """Check between two steps that every block is accounted for. Raises octavo.errors.OctavoError where not."""
        ...

    def decisions(self) -> Sequence[Mapping[str, Any]]:
        """What its scheduler was told and decided last, oldest first. It waits for no step."""
        ...

    def scheduler_config(self) -> Mapping[str, Any]:
        """The arguments of a scheduler in which they can be replayed."""
        ...

    def report_decisions(self, fd: int, at: int, size: int) -> DecisionReport:
        """Keep them in a part of a file that stays open as long as what is returned."""
        ...

    def shutdown(self) -> None: ...
