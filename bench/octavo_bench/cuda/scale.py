"""How large the check is: what a GPU is measured with, or shapes so small that the emulated backend passes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Sizes of the parts."""

    device: str  # "cuda", or "cuda-emulated"
    vocab: int = 128256
    head_dims: tuple[int, ...] = (64, 96, 128, 256)
    groups: tuple[int, ...] = (1, 4, 7, 16)  # query heads per KV head
    block_sizes: tuple[int, ...] = (8, 16, 32)
    prompt: int = 700
    hidden: int = 1024
    # Figures: an 8B-shaped model.
    layers: int = 32
    model_hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    batches: tuple[int, ...] = (1, 32, 256)
    context: int = 1024
    new_tokens: int = 128

    @property
    def on_gpu(self) -> bool:
        """Whether figures mean anything, and torch finds the same device."""
        return self.device == "cuda"


def scale_of(device: str, *, tiny: bool) -> Scale:
    """The sizes for a device."""
    if not tiny:
        return Scale(device)
    return Scale(
        device, vocab=320, head_dims=(64,), groups=(2,), block_sizes=(16,), prompt=20, hidden=64, layers=2,
        model_hidden=64, intermediate=96, heads=4, kv_heads=2, head_dim=64, batches=(1, 3), context=20, new_tokens=4,
    )  # fmt: skip
