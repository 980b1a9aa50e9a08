"""From the name a user gives to files on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from octavo.errors import InvalidArgumentError, ModelError
from octavo.models import builtin
from octavo.models.builtin import DEFAULT_MODEL as DEFAULT_MODEL
from octavo.models.cache import cache_dir as default_cache_dir

# What a model folder needs to be served; weights in other formats (.bin, .pth, .onnx) are left on the hub.
_PATTERNS = [
    "*.safetensors",
    "*.safetensors.index.json",
    "*.json",
    "*.model",
    "*.jinja",
    "merges.txt",
    "vocab.txt",
]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def resolve(
    model: str | os.PathLike[str],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    revision: str | None = None,
    offline: bool = False,
    verify: bool = False,
) -> Path:
    """The local files of ``model``: a GGUF file or a model folder. Downloads what is not here yet.

    Args:
        model: a folder, a ``*.gguf`` file, a built-in name (``"smollm2"``), a Hugging Face id ``"org/name"``, or
            ``"org/name:file.gguf"`` for one GGUF file of a repository.
        cache_dir: where built-in models are kept; see ``octavo.models.cache.cache_dir``. Hugging Face models stay in
            that library's own cache.
        revision: branch, tag or commit of a Hugging Face model.
        offline: never download.
        verify: check the digest of a built-in model that is here, not only its size.

    Raises:
        ModelError: nothing of that name is here, or the download failed.
    """
    name = os.fspath(model)
    if not isinstance(name, str) or not name.strip():
        raise InvalidArgumentError(f"model must be a path or a name, got {model!r}", param="model")
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(
                f"model {name!r} is a file that does not end in .gguf; give a GGUF file or a folder with config.json",
                code="unsupported",
                param="model",
            )
        return path
    if known := builtin.builtin(name):
        cache = default_cache_dir(cache_dir)
        if offline:
            return _cached_builtin(known, name, cache, verify)
        return builtin.pull(known, cache, verify)
    repo, _, file = name.partition(":")
    if (_HUB_ID.fullmatch(repo) and not name.endswith((".gguf", "/"))) or (file and _HUB_ID.fullmatch(repo)):
        return _from_hub(repo, file or None, revision, offline)
    raise ModelError(
        f"model {name!r} was not found: no such folder or GGUF file, not a built-in name "
        f"({', '.join(builtin.names())}) and not a Hugging Face id (org/name)",
        code="not_found",
        param="model",
    )


def _cached_builtin(known: builtin.WheelModel, name: str, cache: Path, verify: bool) -> Path:
    path = builtin.cached_file(known, cache)
    advice = f"run `octavo pull {name}` once with a network"
    if not path.is_file():
        raise ModelError(
            f"model {name!r} is not in the cache {str(cache)!r}; {advice}", code="not_found", param="model"
        )
    if wrong := builtin.damage(known, path, verify):
        raise ModelError(f"{wrong}; {advice}", code="corrupt_file", param="model")
    return path


def _folder(path: Path) -> Path:
    if (path / "config.json").is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(f.name for f in files[:8])
        raise ModelError(
            f"model folder {str(path)!r} holds {len(files)} GGUF files ({names}); name one of them",
            code="invalid_argument",
            param="model",
        )
    raise ModelError(
        f"model folder {str(path)!r} has neither config.json nor a .gguf file",
        code="not_found",
        param="model",
    )


def _from_hub(repo: str, file: str | None, revision: str | None, offline: bool) -> Path:
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            HfHubHTTPError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise ModelError(
            f"model {repo!r} looks like a Hugging Face id, which needs the package huggingface_hub: "
            "pip install huggingface_hub",
            code="unsupported",
            param="model",
        ) from error
    try:
        if file is not None:
            return Path(hf_hub_download(repo, file, revision=revision, local_files_only=offline))
        return _folder(
            Path(
                snapshot_download(repo, revision=revision, allow_patterns=_PATTERNS, local_files_only=offline)
            )
        )
    except LocalEntryNotFoundError as error:
        why = (
            "it is not in the local cache and downloads are off"
            if offline
            else "it is not in the local cache and the hub cannot be reached"
        )
        raise ModelError(f"model {repo!r}: {why}", code="not_found", param="model") from error
    except RevisionNotFoundError as error:
        raise ModelError(
            f"model {repo!r} has no revision {revision!r}", code="not_found", param="revision"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"model {repo!r} is not on the Hugging Face hub, or it is private or gated and no token was given "
            "(huggingface-cli login)",
            code="not_found",
            param="model",
        ) from error
    except EntryNotFoundError as error:
        raise ModelError(f"model {repo!r} has no file {file!r}", code="not_found", param="model") from error
    except (HfHubHTTPError, OSError) as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"model {repo!r} could not be downloaded from the Hugging Face hub: {text[0]}",
            code="not_found",
            param="model",
        ) from error
