from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "reference"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sanitized",
        action="store_true",
        help="the engine under test is built with AddressSanitizer and UBSan",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--sanitized"):
        return
    for item in items:
        if mark := item.get_closest_marker("unsanitized"):
            item.add_marker(pytest.mark.skip(reason=f"under the sanitizers: {mark.args[0]}"))


def pytest_sessionstart() -> None:
    gc.disable()  # while libraries are imported there is next to no garbage


def pytest_collection_finish() -> None:
    """No garbage collection goes through what the imported libraries hold: half a million objects, 0.3 s each time."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # what is still held at the end of the process would be reported as leaked


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of the default model, downloaded into the model cache once."""
    from octavo.models import hub

    return hub.resolve("smollm2")


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """The GGUF file of Gemma 3 270M in Q4_K_M, downloaded into the model cache once."""
    from octavo.models import hub

    return hub.resolve("gemma3-270m")


@pytest.fixture(scope="session")
def float32_folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model's values in float32, as a folder that transformers reads."""
    import export

    folder = tmp_path_factory.mktemp("models") / "float32"
    export.export(smollm2, folder)
    return folder


@pytest.fixture(scope="session")
def tiny_folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few thousand random weights with the default model's tokenizer."""
    import tiny_model

    return tiny_model.make(smollm2, tmp_path_factory.mktemp("models") / "tiny")
