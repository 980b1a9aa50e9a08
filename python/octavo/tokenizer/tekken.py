"""Mistral's tekken.json: byte-level BPE as tiktoken keeps it, tokens with ranks and no merges."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.tokenizer.byte_alphabet import spell
from octavo.tokenizer.library import library_errors
from octavo.tokenizer.merges import merges_by_score

if TYPE_CHECKING:
    import tokenizers

FILE_NAME = "tekken.json"
# What a file without a list of special tokens has, in order of their ids.
_FIRST_SPECIAL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
    "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip
NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def build(data: Any, path: Path) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer that the parsed file describes, and every id's token in the byte alphabet.

    Special tokens come first, then the tokens by rank. A text starts with BOS.

    Raises:
        ModelError: something is missing or cannot be; named with the file.
    """
    from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
    from tokenizers import Tokenizer as Backend

    config = data.get("config") if isinstance(data, dict) else None
    if not isinstance(config, dict) or not isinstance(config.get("pattern"), str):
        raise _corrupt(path, "it has no config.pattern")
    size = _count(path, config, "default_vocab_size")
    reserved = _count(path, config, "default_num_special_tokens")
    special = _special_tokens(path, data.get("special_tokens"), reserved)
    ranked = _ranked_tokens(path, data.get("vocab"), size - reserved)
    # A token that is spelt as a special one cannot be told from it, and the special one goes first.
    taken = set(special)
    pieces = ["" if token in taken else token for token in ranked]
    vocab = {token: i for i, token in enumerate(special)}
    vocab |= {token: reserved + rank for rank, token in enumerate(pieces) if token}
    merges = merges_by_score(pieces, [-rank for rank in range(len(pieces))])
    with library_errors(lambda error: _corrupt(path, f"its vocabulary or pattern cannot be used: {error}")):
        backend = Backend(models.BPE(vocab, merges, ignore_merges=True))
        words = pre_tokenizers.Split(Regex(config["pattern"]), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    bos = NAMED["bos_token"]
    if bos in taken:
        backend.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], special_tokens=[(bos, vocab[bos])]
        )
    return backend, [*special, *ranked]


def _count(path: Path, config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 0 <= value < 2**24:
        raise _corrupt(path, f"config.{name} is {value!r}")
    return value


def _special_tokens(path: Path, listed: Any, count: int) -> list[str]:
    """The tokens of the ids below ``count``; those that have no name get one."""
    if listed is None:
        names: list[Any] = list(_FIRST_SPECIAL)
    elif isinstance(listed, list) and all(
        isinstance(t, dict) and t.get("rank") == i for i, t in enumerate(listed)
    ):
        names = [t.get("token_str") for t in listed]
    else:
        raise _corrupt(path, "special_tokens is not a list of tokens in order of their ranks")
    names += [f"<SPECIAL_{i}>" for i in range(len(names), count)]
    if len(names) != count or len(set(names)) != count or not all(isinstance(n, str) and n for n in names):
        raise _corrupt(path, f"special_tokens does not give {count} different tokens")
    return names


def _ranked_tokens(path: Path, vocab: Any, count: int) -> list[str]:
    if not isinstance(vocab, list) or not 0 <= count <= len(vocab):
        raise _corrupt(path, f"vocab is not a list of at least {count} tokens")
    tokens = []
    for rank, entry in enumerate(vocab[:count]):
        try:
            if entry["rank"] != rank:
                raise ValueError(f"its rank is {entry['rank']!r}")
            tokens.append(spell(base64.b64decode(entry["token_bytes"], validate=True)))
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise _corrupt(path, f"entry {rank} of vocab cannot be read: {error}") from error
    if len(set(tokens)) != count or "" in tokens:
        raise _corrupt(path, "two tokens of vocab have the same bytes, or one has none")
    return tokens


def _corrupt(path: Path, what: str) -> ModelError:
    return ModelError(f"{str(path)!r}: {what}", code="corrupt_file", param=FILE_NAME)
