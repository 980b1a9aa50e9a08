#pragma once
// A softmax over some keys of a query: maximum m and sum l of its scores in base 2, and the output o that is not yet
// divided by l. The one formula by which states combine, spelled with explicit fused operations for equal bits.
#include "backend/cuda/platform.h"

namespace octavo::cuda {

inline constexpr float kLog2E = 1.44269504088896340736f;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

// 2^x in one instruction: what exp2f gives, but 0 where that is subnormal.
__device__ __forceinline__ float exp2_flushed(float x) {
#ifdef OCTAVO_CUDA_EMULATOR
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

struct Merge {
  float kept, added;  // factors of the state so far and of the one that follows it
};

// Appends a state with maximum pm to one with m; its sum and its outputs follow by merge_sum and merge_output. An empty
// state has m = -infinity.
__device__ __forceinline__ Merge merge_maximum(float& m, float pm) {
  const float top = fmaxf(m, pm);
  Merge f{1.0f, 0.0f};
  if (pm != negative_infinity()) {
    f.kept = m == negative_infinity() ? 0.0f : exp2f(__fsub_rn(m, top));
    f.added = exp2f(__fsub_rn(pm, top));
  }
  m = top;
  return f;
}
__device__ __forceinline__ float merge_sum(const Merge& f, float l, float pl) {
  return __fmaf_rn(l, f.kept, __fmul_rn(pl, f.added));
}
__device__ __forceinline__ float merge_output(const Merge& f, float o, float po) {
  return __fmaf_rn(o, f.kept, __fmul_rn(po, f.added));
}

// What the output is multiplied by in the end; sink: a score in natural units that counts in the sum, or null.
__device__ __forceinline__ float final_factor(float m, float l, const float* sink) {
  if (!sink) return __fdiv_rn(1.0f, l);
  const float s = __fmul_rn(*sink, kLog2E), top = fmaxf(s, m);
  const float a = exp2f(__fsub_rn(m, top));
  return __fdiv_rn(a, __fmaf_rn(l, a, exp2f(__fsub_rn(s, top))));
}

}  // namespace octavo::cuda
