"""The tokenizer of a model: ids for text, text for ids, and what the engine and the chat template need to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from octavo import checks
from octavo.errors import ModelError
from octavo.tokenizer.library import library_errors
from octavo.tokenizer.token_bytes import TokenBytes, decoder_of, token_bytes

if TYPE_CHECKING:
    import tokenizers

    from octavo import _engine

# From here on it is worth another thread's while that the interpreter's lock is let go: about a millisecond.
_LONG_CHARACTERS = 2048


# Ids are places in tables; no model has as many.
_MOST_TOKENS = 2**24


class Tokenizer:
    """A `tokenizers.Tokenizer` with the model's special ids. Thread-safe; encoding releases the GIL.

    Args:
        backend: the tokenizer; its truncation and padding are switched off.
        bos_token_id: the token a text starts with, None if there is none.
        eos_token_ids: the tokens that end a text.
        chat_template: the Jinja source, None if the model has none.
        special_tokens: the tokens that chat templates know by name (``"bos_token"``, ``"eos_token"``, ...).
        tokens: every id's token; read from ``backend`` when not given.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: Sequence[int] = (),
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
        tokens: Sequence[str] | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.bos_token_id = bos_token_id
        self.eos_token_ids = list(dict.fromkeys(eos_token_ids))
        self.chat_template = chat_template
        self.special_tokens = dict(special_tokens or {})
        self._tokens = tokens

    @cached_property
    def tokens(self) -> Sequence[str]:
        """Every id's token, as the vocabulary spells it; "" for an id without one."""
        if self._tokens is not None:
            return self._tokens
        vocab = self.backend.get_vocab(with_added_tokens=True)
        largest = max(vocab.values(), default=-1)
        if largest >= _MOST_TOKENS:
            raise ModelError(
                f"the tokenizer has a token with id {largest}, the limit is {_MOST_TOKENS - 1}",
                code="corrupt_file",
                param="tokenizer",
            )
        out = [""] * (largest + 1)
        for token, index in vocab.items():
            out[index] = token
        return out

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return len(self.tokens)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that ``decode`` leaves out with ``skip_special_tokens``."""
        return frozenset(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def byte_table(self) -> TokenBytes:
        """The bytes each id stands for."""
        return token_bytes(self.tokens, decoder_of(self.backend))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``; with ``add_special_tokens`` as the model wants a text to start (BOS)."""
        return encode_with(self.backend, checks.unicode_text("prompt", text), add_special_tokens)

    @cached_property
    def special_affixes(self) -> tuple[list[int], list[int]]:
        """The ids that ``add_special_tokens`` puts before and after a text."""
        plain = self.encode("a", add_special_tokens=False)
        marked = self.encode("a")
        start = next(i for i in range(len(marked)) if marked[i : i + len(plain)] == plain)
        return marked[:start], marked[start + len(plain) :]

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """``encode`` of each text, on the library's own threads."""
        for text in texts:
            checks.unicode_text("prompt", text)
        with library_errors(_cannot_encode):
            encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ``ids``; bytes that are no whole character become U+FFFD."""
        text: str = self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def token_bytes(self, token: int) -> bytes:
        """The bytes one token stands for; none for an id outside the vocabulary."""
        return self.byte_table[token] if 0 <= token < self.vocab_size else b""

    @cached_property
    def longest_token_bytes(self) -> int:
        """No text of n bytes has fewer than n / this many tokens."""
        return max((len(self.byte_table[i]) for i in range(self.vocab_size)), default=0)

    def token_text(self, token: int) -> str:
        """One token's own text, a leading space kept; bytes that are no whole character become U+FFFD."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def token_table(self, vocab_size: int | None = None) -> _engine.TokenTable:
        """The native detokenizer's table, padded to the ``vocab_size`` of the model."""
        import numpy as np

        from octavo import _engine

        table = self.byte_table
        size = max(vocab_size or 0, self.vocab_size)
        offsets = np.full(size + 1, len(table.data), np.uint32)
        offsets[: len(table.offsets)] = table.offsets
        special = np.zeros(size, np.uint8)
        special[[i for i in self.special_ids if i < size]] = 1
        return _engine.TokenTable(table.data, offsets, special, table.strip_leading_space)


def encode_with(backend: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    """Token ids of ``text``.

    A long text goes through the library's batches: only they let go of the interpreter's lock while they work, and
    only a batch of two is handed to the library's own threads, which may have been given a low priority.
    """
    with library_errors(_cannot_encode):
        encoding = (
            backend.encode(text, add_special_tokens=add_special_tokens)
            if len(text) < _LONG_CHARACTERS
            else backend.encode_batch_fast([text, ""], add_special_tokens=add_special_tokens)[0]
        )
    ids: list[int] = encoding.ids
    return ids


def _cannot_encode(error: BaseException) -> ModelError:
    return ModelError(
        f"the tokenizer cannot encode the text: {error}", code="corrupt_file", param="tokenizer"
    )
