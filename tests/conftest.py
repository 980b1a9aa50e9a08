from __future__ import annotations

from pathlib import Path

import pytest


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


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of the default model, downloaded into the model cache once."""
    from octavo.models import hub

    return hub.resolve("smollm2")
