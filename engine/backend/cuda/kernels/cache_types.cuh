#pragma once
// What the attention kernels know of a cache type: which 16-bit type its products are made in, and how codes become it.
#include <cstdint>

#include "backend/cuda/mma.h"
#include "tensor/dtype.h"

namespace octavo::cuda {

struct F16Pairs {
  static __device__ uint32_t pack(float x, float y) {
    const __half2 pair = __floats2half2_rn(x, y);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_f16(d, a, b); }
};
struct Bf16Pairs {
  static __device__ uint32_t pack(float x, float y) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_bf16(d, a, b); }
};

struct F16Cache : F16Pairs {
  static constexpr int kBytes = 2;  // of an element
  static constexpr bool kScaled = false;
};
struct Bf16Cache : Bf16Pairs {
  static constexpr int kBytes = 2;
  static constexpr bool kScaled = false;
};

// Two of four codes, named by the digits of a __byte_perm selector, as f16. Exact.
struct Int8Cache : F16Pairs {
  static constexpr int kBytes = 1;
  static constexpr bool kScaled = true;
  // A byte below the exponent of 1024 counts from there.
  template <int kLow, int kHigh>
  static __device__ uint32_t widen(uint32_t codes) {
    const uint32_t pair = __byte_perm(codes ^ 0x80808080u, 0x64646464u, 0x4040u | kLow | kHigh << 8);
    const uint32_t bias = 0x64806480u;  // 1024 + 128
    const __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&pair), *reinterpret_cast<const __half2*>(&bias));
    return *reinterpret_cast<const uint32_t*>(&value);
  }
};
struct F8Cache : F16Pairs {
  static constexpr int kBytes = 1;
  static constexpr bool kScaled = true;
  // The bits of e4m3 are those of an f16 of 2^-8 times the value, which is what the scales expect.
  template <int kLow, int kHigh>
  static __device__ uint32_t widen(uint32_t codes) {
    const uint32_t high = __byte_perm(codes, 0, 0x0404u | kLow << 4 | kHigh << 12);
    return (high & 0x80008000u) | (high >> 1 & 0x3f803f80u);
  }
};

}  // namespace octavo::cuda
