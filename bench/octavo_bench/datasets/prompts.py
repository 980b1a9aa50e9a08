"""Random prompts: token ids of an exact length, or words where a server takes only text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

Prompt: TypeAlias = str | Sequence[int]

# Ids below are bytes or special tokens in many vocabularies.
FIRST_ID = 300
BLOCK_TOKENS = 512  # what a name in a Mooncake trace stands for

# Short common words, each of them one token in the usual vocabularies.
_TEXT = (
    "the of and to in is was for on that with as it by at from be this are or an have not had but which one were all "
    "their her they we who its been more when can there no out up into only other time new some could them two may "
    "then do first any my now such like our over man me even most made after also did many before must through back "
    "where much your way well down should because each just those people how too little state good very make world "
    "still own see men work long get here between both life being under never day same another know while last might"
)
_WORDS = _TEXT.split()


class PromptMaker:
    """Draws prompts from a seed.

    Args:
        text: words in place of token ids; lengths are then about right only.
        vocab_size: ids are drawn below this.
    """

    def __init__(self, seed: int | Sequence[int], *, text: bool, vocab_size: int) -> None:
        self.text, self.vocab_size = text, vocab_size
        self._seed = seed if isinstance(seed, Sequence) else [seed]
        self.rng = np.random.default_rng(self._seed)

    def draw(self, length: int) -> Prompt:
        """A prompt of ``length`` tokens."""
        return self._draw(self.rng, length)

    def _draw(self, rng: np.random.Generator, length: int) -> Prompt:
        if self.text:
            return " ".join(_WORDS[i] for i in rng.integers(0, len(_WORDS), length))
        ids: list[int] = rng.integers(FIRST_ID, self.vocab_size, length).tolist()
        return ids

    def join(self, *parts: Prompt) -> Prompt:
        """One prompt after the other."""
        if self.text:
            return " ".join(str(part) for part in parts if part)
        return [token for part in parts for token in part]  # type: ignore[misc]

    def of_blocks(self, names: Sequence[int], length: int) -> Prompt:
        """A prompt whose blocks of 512 tokens are what their names stand for, whoever asks; the rest is drawn."""
        parts: list[Prompt] = []
        left = length
        for name in names:
            if left <= 0:
                break
            size = min(left, BLOCK_TOKENS)
            # The whole block is drawn, so that a part of it is the same part every time.
            block = self._draw(np.random.default_rng([*self._seed, 1, name]), BLOCK_TOKENS)
            parts.append(" ".join(str(block).split()[:size]) if self.text else block[:size])
            left -= size
        if left > 0:
            parts.append(self.draw(left))
        return self.join(*parts)
