#pragma once
// A softmax over some keys of a query: maximum m and sum l of its scores in base 2, and the output o that is not yet
// divided by l. The one formula by which states combine, spelled with explicit fused operations for equal bits.
#include "backend/cuda/platform.h"

namespace octavo::cuda {

inline constexpr float kLog2E = 1.44269504088896340736f;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

struct Merge {
  float kept, added;  // factors of the state so far and of the one that follows it
};

// Appends (pm, pl) to (m, l); the outputs follow by merge_output. An empty state has m = -infinity.
__device__ __forceinline__ Merge merge_state(float& m, float& l, float pm, float pl) {
  if (pm == negative_infinity()) return {1.0f, 0.0f};
  Merge f;
  const float top = fmaxf(m, pm);
  f.kept = m == negative_infinity() ? 0.0f : exp2f(__fsub_rn(m, top));
  f.added = exp2f(__fsub_rn(pm, top));
  m = top;
  l = __fmaf_rn(l, f.kept, __fmul_rn(pl, f.added));
  return f;
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
