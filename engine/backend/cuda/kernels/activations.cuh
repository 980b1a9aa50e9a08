#pragma once
#include "backend/cuda/platform.h"
#include "ops/params.h"

// Functions of single activations, as ops/params.h defines the prologues.
namespace octavo::cuda {

inline __device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

inline __device__ float gelu_tanh(float x) {
  const float inner = 0.7978845608028654f * x * fmaf(0.044715f * x, x, 1.0f);
  return 0.5f * x * (1.0f + tanhf(inner));
}

// NaN stays NaN.
inline __device__ float at_most(float x, float limit) { return x > limit ? limit : x; }

inline __device__ float gated_activation(Prologue prologue, float gate, float up) {
  if (prologue == Prologue::kSiluMul) return gate * sigmoid(gate) * up;
  if (prologue == Prologue::kGeluTanhMul) return gelu_tanh(gate) * up;
  const float kept = at_most(gate, 7.0f);
  return kept * sigmoid(1.702f * kept) * (-at_most(-at_most(up, 7.0f), 7.0f) + 1.0f);
}

}  // namespace octavo::cuda
