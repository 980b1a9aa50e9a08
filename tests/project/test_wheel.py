"""The wheel: what is in it, what auditwheel says of it, and that it works where torch and transformers are missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from test_layout import ROOT, tracked
from test_package import requirements

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, made in the folder and the environment of the editable install: little is compiled."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    command.append("--config-settings=build-dir=build/editable/{wheel_tag}")
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=900)
    (built,) = folder.glob("octavo-*.whl")
    return built


def closure(names: list[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions that these need, themselves included."""
    from packaging.requirements import Requirement

    found: dict[str, metadata.Distribution] = {}
    open_names = list(names)
    while open_names:
        name = open_names.pop().lower().replace("_", "-")
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for text in found[name].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                open_names.append(requirement.name)
    return found


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the core dependencies, taken from this one by link, and nothing else."""
    root = tmp_path_factory.mktemp("clean")
    venv.create(root, with_pip=False)
    paths = sysconfig.get_paths(vars={"base": str(root), "platbase": str(root)})
    site = Path(paths["purelib"])
    for distribution in closure([r.name for r in requirements("run")]).values():
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return root / "bin" / "python"


def run(python: Path, code: str) -> str:
    done = subprocess.run(
        [str(python), "-I", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    info = {name for name in names if ".dist-info/" in name}
    shipped = {
        str(path.relative_to(ROOT / folder))
        for folder in ("python", "gateway", "bench")
        for path in tracked(f"{folder}/octavo*")
    }
    extra = names - info - shipped
    assert shipped <= names
    extra -= {
        name
        for name in extra
        if re.search(r"liboctavo_(cuda_emulated|emulator_trial)|octavo_allocations", name)
    }  # for tests alone
    (extension,) = (name for name in extra if name.endswith(".so"))
    assert re.fullmatch(r"octavo/_engine\.[\w-]+\.so", extension)
    stubs = extra - {extension}
    assert "octavo/_engine/__init__.pyi" in stubs
    assert all(re.fullmatch(r"octavo/_engine/\w+\.pyi", name) for name in stubs)
    assert "octavo/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in info)


def test_the_wheel_names_what_it_runs_on(wheel: Path) -> None:
    python, abi, platform = wheel.stem.split("-")[-3:]
    if sys.version_info >= (3, 12):
        assert (python, abi) == ("cp312", "abi3")
    else:
        version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        assert (python, abi) == (version, version)
    assert platform == sysconfig.get_platform().replace("-", "_").replace(".", "_")


def test_the_wheel_passes_auditwheel(wheel: Path) -> None:
    pytest.importorskip("auditwheel")
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "manylinux_2_" in text, text
    # No shared library but those of C and C++ themselves.
    assert set(re.findall(r"lib[\w+-]+(?=\.so)", text)) <= {
        "libc",
        "libm",
        "libgcc_s",
        "libstdc++",
        "libpthread",
    }


def test_the_wheel_needs_neither_torch_nor_transformers(clean_python: Path) -> None:
    for missing in ("torch", "transformers"):
        assert run(clean_python, f"import importlib.util as u; print(u.find_spec({missing!r}))") == "None"
    assert run(clean_python, "import octavo; print(octavo.__version__)")
    assert run(clean_python, "import octavo._engine as engine; print(engine.__doc__)")


def test_the_wheel_serves_without_torch_and_transformers(clean_python: Path, smollm2: Path) -> None:
    main = "import sys; from octavo.cli import main; sys.exit(main())"
    command = [
        str(clean_python),
        "-I",
        "-c",
        main,
        "serve",
        str(smollm2),
        "--port",
        "0",
        "--kv-cache-memory",
        "64MiB",
    ]
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        address = re.search(r"http://127\.0\.0\.1:\d+/v1", server.stdout.readline())
        assert address, "the server did not start"
        request = urllib.request.Request(f"{address[0]}/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert answer["usage"]["completion_tokens"] > 0
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert server.returncode == 0
