"""A tokenizer as the grammar library sees it: its C functions, or its Python classes where those cannot be used."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from octavo import _engine
from octavo.errors import InvalidArgumentError, OctavoError
from octavo.tokenizer import Tokenizer

_TEXT, _ADDED, _CONTROL, _BYTE = range(4)

# Texts of the kind that schemas force. If our way to tokenize them is the tokenizer's, forced text is tokenized.
_SAMPLES = (
    '{"name": "',
    '", "first_name": "',
    '"}, {"type": "object", "properties": {"description": {"$ref": "#/$defs/Node"}}}',
    '{\n  "user_id": 5,\n  "tags": [\n    "a"',
    'true, "is_active": false, "items": [null, -1.5e3]}',
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "',
    "The quick brown fox (of 2024) isn't lazy; it's HTTP/1.1-ready.",
)


class Vocabulary(Protocol):
    """One model's tokens; compiles grammars, on any thread."""

    def compile(self, kind: str, text: str, *, forcing: bool = True) -> _engine.Grammar:
        """Raises ``InvalidArgumentError`` with the library's reason.

        Args:
            forcing: text that the grammar leaves no choice about may be appended without sampling it.
        """
        ...


class NativeVocabulary:
    """Over the library's C functions: no token takes the interpreter's lock.

    Args:
        library: path of the shared library.
        vocab_size: of the model.
        end_tokens: the model's end tokens.
    """

    def __init__(
        self, library: str, tokenizer: Tokenizer, vocab_size: int, end_tokens: Sequence[int]
    ) -> None:
        table = tokenizer.token_table(vocab_size)
        kinds = token_kinds(tokenizer, vocab_size)
        pieces = tokenizer.byte_table.strip_leading_space or bool((kinds == _BYTE).any())
        split = _engine.WordSplit.BLANKS_JOIN_WORD if pieces else _engine.WordSplit.BLANK_JOINS_WORD
        self._make = partial(_engine.GrammarVocabulary, library, table, kinds, list(end_tokens))
        self._native = self._make(split)
        if not self._agrees(tokenizer):
            self._native = self._plain

    @cached_property
    def _plain(self) -> _engine.GrammarVocabulary:
        return self._make()

    @property
    def forces(self) -> bool:
        """Whether text that a grammar leaves no choice about is appended without sampling it."""
        return self._native.forces

    def tokenize(self, text: str) -> list[int]:
        """The ids of forced text."""
        return self._native.tokenize(text.encode())

    def compile(self, kind: str, text: str, *, forcing: bool = True) -> _engine.Grammar:
        return (self._native if forcing else self._plain).compile(kind, text)

    def _agrees(self, tokenizer: Tokenizer) -> bool:
        return all(self.tokenize(text) == _inner_ids(tokenizer, text) for text in _SAMPLES)


class PythonVocabulary:
    """Over the library's Python classes."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_tokens: Sequence[int]) -> None:
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        self._vocab_size = vocab_size
        wrapped = TokenizerWrapper(_Wrapped(tokenizer, vocab_size, end_tokens))
        self._tokenizer = LLTokenizer(wrapped, n_vocab=vocab_size, eos_token=list(end_tokens) or None)

    def compile(self, kind: str, text: str, *, forcing: bool = True) -> _engine.Grammar:
        from llguidance import LLMatcher, grammar_from

        form: Any = kind
        matcher = LLMatcher(self._tokenizer, grammar_from(form, text), log_level=0)
        if matcher.is_error():
            raise InvalidArgumentError(matcher.get_error().split("\n<state>")[0], param="grammar")
        return _engine.python_grammar(matcher, self._vocab_size)


class _Wrapped:
    """What ``TokenizerWrapper`` asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_tokens: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = end_tokens[0] if end_tokens else None
        self.bos_token_id = tokenizer.bos_token_id
        self._size = vocab_size

    @cached_property
    def tokens(self) -> list[bytes]:
        return [self._tokenizer.token_bytes(i) for i in range(self._size)]

    @property
    def special_token_ids(self) -> list[int]:
        return sorted(i for i in self._tokenizer.special_ids if i < self._size)

    def __call__(self, text: str | bytes) -> list[int]:
        decoded = text if isinstance(text, str) else text.decode("utf-8", "replace")
        return self._tokenizer.encode(decoded, add_special_tokens=False)


def _inner_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text that others precede: SentencePiece puts a blank before its first word."""
    if not tokenizer.byte_table.strip_leading_space:
        return tokenizer.encode(text, add_special_tokens=False)
    before = tokenizer.encode("\n", add_special_tokens=False)
    return tokenizer.encode("\n" + text, add_special_tokens=False)[len(before) :]


def make_vocabulary(tokenizer: Tokenizer, vocab_size: int, end_tokens: Sequence[int]) -> Vocabulary:
    """The quickest that works here; a warning where that is the slow one.

    Raises:
        InvalidArgumentError: llguidance is not installed.
    """
    try:
        return NativeVocabulary(library_path(), tokenizer, vocab_size, end_tokens)
    except OctavoError as error:
        if error.code != "unsupported":
            raise
        warnings.warn(
            f"{error}. Structured output runs through Python, which slows every step: install llguidance>=1.9,<1.10",
            RuntimeWarning,
            stacklevel=2,
        )
    return PythonVocabulary(tokenizer, vocab_size, end_tokens)


def problem() -> str | None:
    """Why structured output does not work here, or not at its speed; None where it does. It takes milliseconds."""
    try:
        _engine.llguidance_version(library_path())
    except OctavoError as error:
        return str(error)
    return None


def library_path() -> str:
    """The shared library in llguidance's wheel, found without importing the package."""
    found = importlib.util.find_spec("llguidance")
    if found is None or not found.submodule_search_locations:
        raise InvalidArgumentError(
            "structured output needs the package llguidance, which is not installed",
            param="structured_outputs",
        )
    libraries = sorted(Path(found.submodule_search_locations[0]).glob("_lib*.so"))
    if not libraries:
        raise OctavoError("llguidance has no shared library", code="unsupported", param="llguidance")
    return str(libraries[0])


def token_kinds(tokenizer: Tokenizer, vocab_size: int) -> Any:
    """uint8 ``[vocab_size]``: how each token comes about."""
    import numpy as np

    kinds = np.zeros(vocab_size, np.uint8)
    byte = re.compile(r"<0x[0-9A-Fa-f]{2}>")
    if any(token == "<0x0A>" for token in tokenizer.tokens[:1024]):
        kinds[[i for i, t in enumerate(tokenizer.tokens) if i < vocab_size and byte.fullmatch(t)]] = _BYTE
    for index, token in tokenizer.backend.get_added_tokens_decoder().items():
        if index < vocab_size:
            kinds[index] = _CONTROL if token.special else _ADDED
    return kinds
