"""Encoding of rendered chats in which text from outside can never become a control token.

A chat template writes control tokens (``<|im_end|>``) between messages as text. Should the same text stand inside a
message, it must stay text. So before rendering, control tokens inside messages are fenced with two characters that
occur nowhere else; after rendering, what is fenced is tokenized as plain text and what the template wrote itself as
control tokens. Chats that hold no control token are rendered and tokenized as they are.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from octavo.errors import InvalidArgumentError
from octavo.tokenizer.tokenizer import Tokenizer, encode_with

# Unicode's noncharacters: legal in a string, never in interchanged text.
_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDEF)]  # U+FDEF is chat.py's


class ControlTokens:
    """The tokens that steer a model, as seen by one tokenizer and one chat template.

    Special tokens always count; an added token that is not special (``<tool_call>``) counts where the template
    itself writes it. In an assistant's message only the special ones do, since the others are the model's own words.
    """

    def __init__(self, tokenizer: Tokenizer, template_source: str) -> None:
        added = tokenizer.backend.get_added_tokens_decoder()
        self._tokenizer = tokenizer
        self._added = [added[i] for i in sorted(added)]
        self._special = {t.content for t in self._added if t.special and t.content}
        written = {t.content for t in self._added if t.content.strip() and t.content in template_source}
        self._all = self._special | written
        self._pattern = _pattern(self._all)
        self._special_pattern = _pattern(self._special)
        self._open_ends = {t[:i] for t in self._all for i in range(1, len(t))}
        self._longest = max(map(len, self._all), default=0)

    def appear_in(self, data: Any) -> bool:
        """Whether a string in ``data`` holds a control token, or ends so that what follows it could complete one."""
        return any(self._holds_one(s) or self._ends_open(s) for s in _strings(data))

    def _holds_one(self, text: str) -> bool:
        # Token by token: a single search for all of them would hold the interpreter's lock for a tenth of a second.
        return any(token in text for token in self._all)

    def _ends_open(self, text: str) -> bool:
        tail = text[-self._longest :]
        return any(tail[i:] in self._open_ends for i in range(len(tail)))

    def fence(self, messages: list[dict[str, Any]], *others: Any) -> tuple[Fences, list[Any]]:
        """The same data with control tokens fenced: messages first, then ``others`` (tools, documents)."""
        text = "".join(_strings([messages, *others]))
        free = [c for c in _NONCHARACTERS if c not in text]
        if len(free) < 2:
            raise InvalidArgumentError("messages use all of Unicode's noncharacters", param="messages")
        fences = Fences(free[0], free[1])
        fenced = [
            self._fence(m, fences, self._special_pattern if m.get("role") == "assistant" else self._pattern)
            for m in messages
        ]
        return fences, [fenced, *(self._fence(other, fences, self._pattern) for other in others)]

    def _fence(self, data: Any, fences: Fences, pattern: re.Pattern[str]) -> Any:
        if isinstance(data, str):
            out = pattern.sub(lambda m: f"{fences.open}{m[0]}{fences.close}", data)
            return out + fences.open if self._ends_open(data) else out
        if isinstance(data, dict):
            return {self._fence(k, fences, pattern): self._fence(v, fences, pattern) for k, v in data.items()}
        if isinstance(data, list):
            return [self._fence(item, fences, pattern) for item in data]
        return data

    def encode(self, rendered: str, fences: Fences) -> list[int]:
        """Token ids of a chat that was rendered from fenced data."""
        edge = f"[{fences.open}{fences.close}]"
        inner = self._pattern.pattern
        ids: list[int] = []
        run = ""  # control tokens and text without fences: encoded as usual
        text, plain = "", False  # the text since the last control token, and whether it held a fence
        end = 0
        pattern = re.compile(f"{fences.open}(?P<text>{inner}){fences.close}|(?P<token>{inner})|{edge}")
        for match in matches(pattern, rendered, self._longest + 2):
            text += rendered[end : match.start()]
            end = match.end()
            if match["token"] is None:
                text, plain = text + (match["text"] or ""), True
                continue
            if plain:
                ids += self._encode_run(run) + self._encode_plain(text, run, match["token"])
                run = ""
            else:
                run += text
            run, text, plain = run + match["token"], "", False
        text += rendered[end:]
        if not plain:
            return ids + self._encode_run(run + text)
        return ids + self._encode_run(run) + self._encode_plain(text, run, "")

    def _encode_run(self, run: str) -> list[int]:
        return self._tokenizer.encode(run, add_special_tokens=False) if run else []

    def _encode_plain(self, text: str, before: str, after: str) -> list[int]:
        """``text`` without control tokens; those around it may swallow the spaces next to them."""
        if any(t.rstrip and before.endswith(t.content) for t in self._added):
            text = text.lstrip()
        if any(t.lstrip and after == t.content for t in self._added):
            text = text.rstrip()
        backend = self._plain_after_start if before else self._plain_at_start
        return encode_with(backend, text, add_special_tokens=False)

    @cached_property
    def _plain_at_start(self) -> Any:
        """The tokenizer with every control token switched off; it shares the vocabulary."""
        from tokenizers import AddedToken
        from tokenizers import Tokenizer as Backend

        model, hidden = self._model_of_text()
        backend = Backend(model)
        if self._tokenizer.backend.normalizer is not None:
            backend.normalizer = self._tokenizer.backend.normalizer
        if self._tokenizer.backend.pre_tokenizer is not None:
            backend.pre_tokenizer = self._tokenizer.backend.pre_tokenizer
        for token in self._added:  # in order of their ids, so that they get the same ids again
            if token.content in hidden:
                continue
            special = token.content in self._all
            copy = AddedToken(
                token.content,
                single_word=token.single_word,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=token.normalized,
                special=special,
            )
            (backend.add_special_tokens if special else backend.add_tokens)([copy])
        backend.encode_special_tokens = True
        return backend

    def _model_of_text(self) -> tuple[Any, set[str]]:
        """The model, and the control tokens that it no longer knows.

        A unigram model takes any piece rather than a character that it does not know, a control token's, too. So these
        pieces are spelt in a way that no text is.
        """
        from tokenizers import models

        model = self._tokenizer.backend.model
        if not isinstance(model, models.Unigram):
            return model, set()
        unigram = json.loads(self._tokenizer.backend.to_str())["model"]
        hidden = {piece for piece, _ in unigram["vocab"] if piece in self._all}
        never = f" {secrets.token_hex(16)} "
        vocab = [
            (f"{never}{i}" if piece in hidden else piece, score)
            for i, (piece, score) in enumerate(unigram["vocab"])
        ]
        fallback = unigram.get("byte_fallback", False)
        return models.Unigram(vocab, unk_id=unigram["unk_id"], byte_fallback=fallback), hidden

    @cached_property
    def _plain_after_start(self) -> Any:
        """The same for text inside a chat, where SentencePiece puts no space in front."""
        from tokenizers import Tokenizer as Backend
        from tokenizers import pre_tokenizers

        outer = self._plain_at_start
        metaspace = outer.pre_tokenizer
        if not isinstance(metaspace, pre_tokenizers.Metaspace) or metaspace.prepend_scheme != "first":
            return outer
        backend = Backend.from_str(outer.to_str())
        backend.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement=metaspace.replacement, prepend_scheme="never", split=metaspace.split
        )
        backend.encode_special_tokens = True
        return backend


class Fences:
    """The two characters put around control tokens in one chat."""

    def __init__(self, opening: str, closing: str) -> None:
        self.open = opening
        self.close = closing


def matches(
    pattern: re.Pattern[str], text: str, longest: int, window: int = 2**16
) -> Iterator[re.Match[str]]:
    """``pattern.finditer``, a window at a time: one search of a long text holds the interpreter's lock throughout.

    Args:
        longest: no match has more characters.
        window: more than ``longest``.
    """
    start = 0
    while start < len(text):
        end = start + window
        found = pattern.search(text, start, end)
        sure = (
            len(text) if end >= len(text) else end - longest
        )  # what starts here does not reach the window's end
        if found is None or found.start() > sure:
            start = len(text) if end >= len(text) else sure + 1
            continue
        yield found
        start = found.end()


def _pattern(tokens: set[str]) -> re.Pattern[str]:
    """Any of ``tokens``, the longest where several fit."""
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or r"(?!)")


def _strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _strings(key)
            yield from _strings(value)
    elif isinstance(data, list):
        for item in data:
            yield from _strings(item)
