#pragma once
#include <cstddef>
#include <cstdint>

namespace octavo {

// One head of one token on its way into the cache.
struct KvKernels {
  // x[i], x[half + i] rotated by the angle whose cosine is cos_sin[i] and sine cos_sin[half + i], half = rotary_dim
  // / 2.
  void (*rotate)(float* x, const float* cos_sin, int rotary_dim);
  // Converted (nearest, ties to even) and stored `stride` elements apart. One function per cache type: f32, f16, bf16.
  void (*store[3])(const float* x, int dim, std::byte* out, size_t stride);
};

extern const KvKernels kKvKernelsBaseline;
extern const KvKernels kKvKernelsAvx2;

}  // namespace octavo
