"""A tokenizer from a model folder in Hugging Face's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octavo.errors import ModelError
from octavo.tokenizer import tekken
from octavo.tokenizer.library import library_errors, try_out
from octavo.tokenizer.tokenizer import Tokenizer


def from_folder(folder: Path) -> Tokenizer:
    """Build the tokenizer of ``folder``: tokenizer.json or Mistral's tekken.json, with tokenizer_config.json and
    generation_config.json.

    Whether a text starts with BOS is what tokenizer.json's post-processor does. A folder that has only a slow
    tokenizer's files is read through transformers, if that is installed.

    Raises:
        ModelError: no tokenizer there, or its files cannot be read.
    """
    config = read_object(folder / "tokenizer_config.json")
    names = _special_tokens(folder, config)
    tokens = None
    if (folder / "tokenizer.json").is_file():
        backend = _backend(folder / "tokenizer.json")
    elif (folder / tekken.FILE_NAME).is_file():
        backend, tokens = tekken.build(read_json(folder / tekken.FILE_NAME), folder / tekken.FILE_NAME)
        names = {**tekken.NAMED, **names}
    else:
        backend = _through_transformers(folder)
    return Tokenizer(
        backend,
        bos_token_id=_token_id(backend, names.get("bos_token")),
        eos_token_ids=_end_ids(folder, backend, names.get("eos_token")),
        chat_template=_chat_template(folder, config),
        special_tokens=names,
        tokens=tokens,
    )


def read_json(path: Path, default: Any = None) -> Any:
    """The parsed file; ``default`` if it does not exist."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if default is not None:
            return default
        raise ModelError(f"{str(path)!r} does not exist", code="not_found", param=path.name) from None
    except (ValueError, OSError, RecursionError) as error:
        raise ModelError(
            f"{str(path)!r} cannot be read: {error}", code="corrupt_file", param=path.name
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """The parsed file, which holds an object; an empty one if it does not exist."""
    value = read_json(path, {})
    if not isinstance(value, dict):
        raise ModelError(f"{str(path)!r} is not a JSON object", code="corrupt_file", param=path.name)
    return value


def _backend(path: Path) -> Any:
    from tokenizers import Tokenizer as Backend

    with library_errors(lambda error: _unreadable(path, error)):
        backend = Backend.from_file(str(path))
    try_out(backend, lambda error: _unreadable(path, error))
    return backend


def _unreadable(path: Path, error: BaseException) -> ModelError:
    return ModelError(
        f"{str(path)!r} cannot be read by the tokenizers library: {error}",
        code="corrupt_file",
        param="tokenizer.json",
    )


def _through_transformers(folder: Path) -> Any:
    slow = [n for n in ("tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "spiece.model")]
    found = [name for name in slow if (folder / name).is_file()]
    if not found:
        raise ModelError(
            f"model folder {str(folder)!r} has no tokenizer: tokenizer.json is missing",
            code="not_found",
            param="tokenizer",
        )
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ModelError(
            f"model folder {str(folder)!r} has {', '.join(found)} but no tokenizer.json; reading it needs "
            "transformers: pip install 'octavo[torch]'",
            code="unsupported",
            param="tokenizer",
        ) from error
    try:
        backend = getattr(
            AutoTokenizer.from_pretrained(folder, local_files_only=True), "backend_tokenizer", None
        )
    except Exception as error:  # whatever transformers' many loaders raise
        raise ModelError(
            f"transformers cannot read the tokenizer of {str(folder)!r}: {error}",
            code="corrupt_file",
            param="tokenizer",
        ) from error
    if backend is None:
        raise ModelError(
            f"the tokenizer of {str(folder)!r} has no fast form; convert it to tokenizer.json first",
            code="unsupported",
            param="tokenizer",
        )
    return backend


def _content(token: Any) -> str | None:
    """A special token is spelt as a string or as an object with its content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _special_tokens(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """``"bos_token"`` and the like to the token; an entry in the configuration, null too, overrules the older file."""
    merged = {**read_object(folder / "special_tokens_map.json"), **config}
    found = {name: _content(token) for name, token in merged.items() if name.endswith("_token")}
    for name, token in found.items():
        if token is not None and _has_surrogate(token):
            raise ModelError(
                f"{str(folder)!r}: {name} is {token!r}, which is not Unicode text",
                code="corrupt_file",
                param=name,
            )
    return {name: token for name, token in found.items() if token is not None}


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _token_id(backend: Any, token: str | None) -> int | None:
    return None if token is None else backend.token_to_id(token)


def _end_ids(folder: Path, backend: Any, eos_token: str | None) -> list[int]:
    """The tokenizer's EOS first, then every end token of generation_config.json or, without one, config.json."""
    ids = [] if eos_token is None else [_token_id(backend, eos_token)]
    for name in ("generation_config.json", "config.json"):
        value = read_object(folder / name).get("eos_token_id")
        if value is not None:
            ids += value if isinstance(value, list) else [value]
            break
    return list(dict.fromkeys(i for i in ids if type(i) is int))


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """A file of its own, else the one in tokenizer_config.json; of several named ones the default."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(
                f"{str(file)!r} cannot be read: {error}", code="corrupt_file", param=file.name
            ) from error
    template = read_object(folder / "chat_template.json").get("chat_template") or config.get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default") or next(iter(named.values()), None)
    return template if isinstance(template, str) else None
