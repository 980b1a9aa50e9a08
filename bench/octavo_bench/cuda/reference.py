"""A decoder in plain torch, in float32 or with bfloat16 activations, for any of the variants that are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo import _engine

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Variant:
    """What sets one small model apart from another."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    vocab: int
    layers: int = 1
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    qk_norm: bool = False
    bias: bool = False

    def config(self, positions: int) -> _engine.ModelConfig:
        """The engine's description of it."""
        c = _engine.ModelConfig()
        c.architecture = "llama"
        c.num_layers, c.hidden, c.intermediate = self.layers, self.hidden, self.intermediate
        c.heads, c.kv_heads, c.head_dim = self.heads, self.kv_heads, self.head_dim
        c.vocab, c.max_positions = self.vocab, positions
        rope = _engine.RopeConfig()
        rope.rotary_dim = self.head_dim
        c.rope = rope
        c.attention_softcap = self.softcap
        c.attention_sinks, c.attention_bias = self.sinks, self.bias
        if self.qk_norm:
            c.qk_norm = _engine.QkNorm.HEAD
        if self.window:
            layer = _engine.LayerConfig()
            layer.window = self.window
            c.layers = [layer] * self.layers
        return c

    def weights(self, seed: int = 1, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
        """Random tensors, on the CPU; drawn where that is fastest."""
        random = torch.Generator("cuda" if torch.cuda.is_available() else "cpu").manual_seed(seed)

        def matrix(rows: int, columns: int, spread: float = 1.0) -> torch.Tensor:
            values = torch.randn(rows, columns, generator=random, device=random.device)
            scaled: torch.Tensor = values * (spread / columns**0.5)
            return scaled.to(dtype).cpu()

        def vector(n: int, *, around: float = 0.0) -> torch.Tensor:
            return around + torch.randn(n, generator=random, device=random.device).cpu() * 0.2

        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        out = {
            "model.embed_tokens.weight": matrix(self.vocab, self.hidden, self.hidden**0.5),
            "model.norm.weight": vector(self.hidden, around=1.0),
            "lm_head.weight": matrix(self.vocab, self.hidden, 3.0),
        }
        for i in range(self.layers):
            p = f"model.layers.{i}."
            out |= {
                p + "input_layernorm.weight": vector(self.hidden, around=1.0),
                p + "post_attention_layernorm.weight": vector(self.hidden, around=1.0),
                p + "self_attn.q_proj.weight": matrix(q, self.hidden, 2.0),
                p + "self_attn.k_proj.weight": matrix(kv, self.hidden, 2.0),
                p + "self_attn.v_proj.weight": matrix(kv, self.hidden),
                p + "self_attn.o_proj.weight": matrix(self.hidden, q),
                p + "mlp.gate_proj.weight": matrix(self.intermediate, self.hidden),
                p + "mlp.up_proj.weight": matrix(self.intermediate, self.hidden),
                p + "mlp.down_proj.weight": matrix(self.hidden, self.intermediate),
            }
            if self.sinks:
                out[p + "self_attn.sinks"] = vector(self.heads)
            if self.qk_norm:
                out[p + "self_attn.q_norm.weight"] = vector(self.head_dim, around=1.0)
                out[p + "self_attn.k_norm.weight"] = vector(self.head_dim, around=1.0)
            if self.bias:
                for name, n in (("q", q), ("k", kv), ("v", kv)):
                    out[f"{p}self_attn.{name}_proj.bias"] = vector(n)
        return out


@torch.no_grad()
def logits(
    v: Variant, weights: Mapping[str, torch.Tensor], ids: list[int], device: str, rounding: torch.dtype
) -> torch.Tensor:
    """[tokens, vocab] in float32. ``rounding``: what activations are rounded to where a product reads them."""
    w = {name: tensor.to(device, torch.float32) for name, tensor in weights.items()}

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(rounding).float()

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w[name + ".weight"]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.linear(rounded(x), w[name + ".weight"], w.get(name + ".bias"))

    n = len(ids)
    positions = torch.arange(n, device=device)
    half = v.head_dim // 2
    angles = positions[:, None] * 10000.0 ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def rotate(x: torch.Tensor) -> torch.Tensor:
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    seen = positions[None, :] <= positions[:, None]
    if v.window:
        seen &= positions[None, :] > positions[:, None] - v.window
    x = w["model.embed_tokens.weight"][torch.tensor(ids, device=device)]
    for i in range(v.layers):
        p = f"model.layers.{i}."
        h = norm(x, p + "input_layernorm")
        q = linear(h, p + "self_attn.q_proj").view(n, v.heads, v.head_dim)
        k = linear(h, p + "self_attn.k_proj").view(n, v.kv_heads, v.head_dim)
        value = linear(h, p + "self_attn.v_proj").view(n, v.kv_heads, v.head_dim)
        if v.qk_norm:
            q, k = norm(q, p + "self_attn.q_norm"), norm(k, p + "self_attn.k_norm")
        q, k = rounded(rotate(q)), rounded(rotate(k))
        k, value = (t.repeat_interleave(v.heads // v.kv_heads, 1) for t in (k, rounded(value)))
        scores = torch.einsum("qhd,khd->hqk", q, k) / v.head_dim**0.5
        if v.softcap:
            scores = v.softcap * torch.tanh(scores / v.softcap)
        scores = scores.masked_fill(~seen, float("-inf"))
        if v.sinks:
            sink = w[p + "self_attn.sinks"][:, None, None].expand(-1, n, 1)
            weights_of = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
        else:
            weights_of = torch.softmax(scores, -1)
        mixed = torch.einsum("hqk,khd->qhd", rounded(weights_of), value).reshape(n, -1)
        x = x + linear(mixed, p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm")
        gated = torch.nn.functional.silu(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj")
        x = x + linear(gated, p + "mlp.down_proj")
    return linear(norm(x, "model.norm"), "lm_head")
