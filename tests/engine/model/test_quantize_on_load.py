"""Quantization while loading: the model that the gguf package's blocks of the same weights make."""

import gguf
import numpy as np
import pytest
import torch
from tiny_models import random_ids, reference_logits, save, tiny_llama

from octavo import _engine
from octavo.errors import InvalidArgumentError
from octavo.models.checkpoint import open_checkpoint

Q = gguf.GGMLQuantizationType


def quantized(model, matrices):
    """The model with every matrix as the blocks of the gguf package have it."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and parameter.shape[1] % 32 == 0:
                kind = Q.Q8_0 if "embed_tokens" in name or "lm_head" in name else matrices
                raw = gguf.quants.quantize(parameter.float().numpy(), kind)
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(raw, kind)))
    return model


def runner(checkpoint):
    # With activations in float32 also where a weight stays in bf16.
    return _engine.ModelRunner(checkpoint.config, checkpoint.weights, max_positions=512, isa="baseline")


@pytest.mark.parametrize(
    ("quantization", "matrices", "tolerance"), [("q8", Q.Q8_0, 1e-3), ("q4", Q.Q4_1, 0.1)]
)
def test_logits_are_those_of_the_quantized_weights(tmp_path, quantization, matrices, tolerance):
    model = tiny_llama(torch.bfloat16, hidden_size=96, num_attention_heads=6, intermediate_size=100)
    checkpoint = open_checkpoint(save(model, tmp_path, torch.bfloat16))
    ids = random_ids(100)
    plain = runner(checkpoint)
    packed = runner(checkpoint.quantized(quantization))
    want = reference_logits(quantized(model.float(), matrices), ids)
    spread = np.abs(want).max()
    error = np.abs(packed.logits(ids) - want).max()
    assert error < tolerance * spread
    assert error < np.abs(plain.logits(ids) - want).max() / 2
    assert checkpoint.quantized(quantization).weights.file_bytes == checkpoint.weights.file_bytes


def test_what_is_quantized_already_is_refused(smollm2):
    checkpoint = open_checkpoint(smollm2)
    assert checkpoint.quantized("gguf") is checkpoint
    with pytest.raises(InvalidArgumentError, match="quantized already") as caught:
        checkpoint.quantized("q8")
    assert caught.value.param == "quantization"
    with pytest.raises(InvalidArgumentError, match="'awq' is not what .* holds: gguf"):
        checkpoint.quantized("awq")
