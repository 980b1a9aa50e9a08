from __future__ import annotations

from pathlib import Path

import pytest
import text_reference


@pytest.fixture(scope="session")
def smollm2_text(smollm2: Path) -> text_reference.Reference:
    return text_reference.byte_level(smollm2)


@pytest.fixture(scope="session")
def llama_text() -> text_reference.Reference:
    return text_reference.sentencepiece()
