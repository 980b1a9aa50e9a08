"""A llama of a few thousand weights with the default model's tokenizer: fast, and as talkative as noise.

python tests/reference/tiny_model.py MODEL.gguf FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTH, LAYERS, HEADS, WINDOW = 32, 2, 4, 2048


def make(gguf_file: Path, folder: Path) -> Path:
    """Writes the model to `folder`; the same bytes every time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    # AutoTokenizer finds the same, and reads the file three times with gguf, which takes seconds.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
