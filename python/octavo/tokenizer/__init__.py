"""Text to token ids and back, built directly on the `tokenizers` library."""

from __future__ import annotations

from octavo.tokenizer.from_folder import from_folder
from octavo.tokenizer.from_gguf import from_gguf
from octavo.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer", "from_folder", "from_gguf"]
