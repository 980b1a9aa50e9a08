"""A tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.tokenizer import sentencepiece
from octavo.tokenizer.library import library_errors, try_out
from octavo.tokenizer.splits import split_of
from octavo.tokenizer.token_type import TokenType
from octavo.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers


# End of text, end of turn, end of message: a GGUF has no generation_config, these are what it has instead.
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_NAMED_KEYS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that ``metadata`` (key to value, arrays as lists) describes.

    Raises:
        ModelError: a kind of tokenizer that is not supported, or metadata that is missing or contradictory.
    """
    kind = _get(metadata, "model")
    tokens = _texts(_get(metadata, "tokens"), "tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if types is not None and not _are_integers(types, 0, 255):
        raise _corrupt("token_type", "is not a list of kinds")
    if types is not None and len(types) != len(tokens):
        raise _corrupt("token_type", f"has {len(types)} entries for {len(tokens)} tokens")
    add_eos = False
    if kind == "gpt2":
        backend, add_bos = _byte_level_bpe(metadata, tokens)
    elif kind == "llama":
        backend, add_bos = _sentencepiece(metadata, tokens, types, unigram=False), True
    elif kind == "t5":
        backend, add_bos, add_eos = _sentencepiece(metadata, tokens, types, unigram=True), False, True
    else:
        raise ModelError(
            f"tokenizer.ggml.model is {kind!r}, which cannot be built from a GGUF file; supported are 'gpt2' "
            "(byte-level BPE), 'llama' (SentencePiece BPE) and 't5' (SentencePiece unigram). A folder with the model's "
            "tokenizer.json can be given as the tokenizer instead",
            code="unsupported",
            param="tokenizer.ggml.model",
        )
    _add_tokens(backend, tokens, types)
    bos = _special_id(metadata, "bos_token_id", len(tokens))
    ends = [i for key in _END_KEYS if (i := _special_id(metadata, key, len(tokens))) is not None]
    _add_borders(
        backend,
        tokens[bos] if bos is not None and metadata.get("tokenizer.ggml.add_bos_token", add_bos) else None,
        tokens[ends[0]] if ends and metadata.get("tokenizer.ggml.add_eos_token", add_eos) else None,
    )
    try_out(backend, lambda error: _corrupt("tokens", f"and what goes with them cannot be used: {error}"))
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(
        backend,
        bos_token_id=bos,
        eos_token_ids=ends,
        chat_template=None if template is None else _text(template, "tokenizer.chat_template"),
        special_tokens=_named_tokens(metadata, tokens),
        tokens=tokens,
    )


def _named_tokens(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, str]:
    ids = {name: _special_id(metadata, f"{key}_token_id", len(tokens)) for name, key in _NAMED_KEYS.items()}
    return {name: tokens[i] for name, i in ids.items() if i is not None}


def _byte_level_bpe(metadata: Mapping[str, Any], tokens: list[str]) -> tuple[tokenizers.Tokenizer, bool]:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    split = split_of(_text(metadata.get("tokenizer.ggml.pre", "default"), "tokenizer.ggml.pre"))
    vocab = dict(zip(tokens, range(len(tokens)), strict=True))
    merges = [_pair(merge) for merge in _texts(_get(metadata, "merges"), "merges")]
    with library_errors(lambda error: _corrupt("merges", f"do not fit the vocabulary: {error}")):
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=split.ignore_merges)
    backend = Backend(model)
    split.install(backend)
    backend.decoder = decoders.ByteLevel()
    return backend, split.add_bos


def _sentencepiece(
    metadata: Mapping[str, Any], tokens: list[str], types: Sequence[int] | None, *, unigram: bool
) -> tokenizers.Tokenizer:
    scores = _get(metadata, "scores")
    if not isinstance(scores, list) or not all(type(score) in (int, float) for score in scores):
        raise _corrupt("scores", "is not a list of numbers")
    if len(scores) != len(tokens):
        raise _corrupt("scores", f"has {len(scores)} entries for {len(tokens)} tokens")
    if types is None:
        raise _corrupt("token_type", "is missing")
    unknown = _special_id(metadata, "unknown_token_id", len(tokens))
    space_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    if not unigram:
        with library_errors(lambda error: _corrupt("tokens", f"cannot be used: {error}")):
            return sentencepiece.build_bpe(tokens, scores, types, unknown=unknown, space_prefix=space_prefix)
    charsmap = metadata.get("tokenizer.ggml.precompiled_charsmap", [])
    if not _are_integers(charsmap, -128, 255):
        raise _corrupt("precompiled_charsmap", "is not a list of bytes")
    with library_errors(
        lambda error: _corrupt("precompiled_charsmap", f"or the vocabulary cannot be used: {error}")
    ):
        return sentencepiece.build_unigram(
            tokens,
            scores,
            types,
            unknown=unknown,
            space_prefix=space_prefix,
            charsmap=bytes(value & 0xFF for value in charsmap),  # some writers store signed bytes
            squeeze_spaces=bool(metadata.get("tokenizer.ggml.remove_extra_whitespaces", False)),
        )


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _add_tokens(backend: tokenizers.Tokenizer, tokens: list[str], types: Sequence[int] | None) -> None:
    """Control tokens are special; user-defined ones are matched whole in the text but are not."""
    from tokenizers import AddedToken

    if types is None:
        return
    control = [t for t, kind in zip(tokens, types, strict=True) if kind == TokenType.CONTROL]
    defined = [t for t, kind in zip(tokens, types, strict=True) if kind == TokenType.USER_DEFINED]
    backend.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control if t])
    backend.add_tokens([AddedToken(t, normalized=False, special=False) for t in defined if t])


def _add_borders(backend: tokenizers.Tokenizer, bos: str | None, eos: str | None) -> None:
    """Let ``encode(add_special_tokens=True)`` put ``bos`` before and ``eos`` after a text."""
    from tokenizers import processors

    if bos is None and eos is None:
        return
    borders = [(t, backend.token_to_id(t)) for t in dict.fromkeys((bos, eos)) if t is not None]
    # A list, not a string: the string form would split the template at a space inside a token.
    single = [t for t in (bos, "$A", eos) if t is not None]
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=borders)


def _special_id(metadata: Mapping[str, Any], name: str, vocab_size: int) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size:
        raise _corrupt(name, f"is {value!r}, token ids run from 0 to {vocab_size - 1}")
    return value


def _get(metadata: Mapping[str, Any], name: str) -> Any:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None:
        raise _corrupt(name, "is missing")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, (str, bytes)):
        raise ModelError(f"GGUF metadata {name} is not a string", code="corrupt_file", param=name)
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _are_integers(values: Any, low: int, high: int) -> bool:
    return isinstance(values, (list, tuple)) and all(type(v) is int and low <= v <= high for v in values)


def _texts(values: Any, name: str) -> list[str]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, (str, bytes)) for v in values):
        raise _corrupt(name, "is not a list of strings")
    return [v if isinstance(v, str) else v.decode("utf-8", "replace") for v in values]


def _corrupt(name: str, what: str) -> ModelError:
    return ModelError(
        f"GGUF metadata tokenizer.ggml.{name} {what}", code="corrupt_file", param=f"tokenizer.ggml.{name}"
    )
