from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of the default model, downloaded into the model cache once."""
    from octavo.models import hub

    return hub.resolve("smollm2")
