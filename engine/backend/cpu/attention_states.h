#pragma once
// How the softmax states of partitions combine and end; included after a vector header.
#include "backend/cpu/attention_softmax.h"
#include "backend/cpu/vec_math.h"

namespace octavo {
namespace {

void combine(float& m, float& l, float* o, float pm, float pl, const float* po, int v_dim) {
  if (pm == kNegInf) return;
  if (m == kNegInf) {
    m = pm;
    l = pl;
    __builtin_memcpy(o, po, sizeof(float) * v_dim);
    return;
  }
  const float top = pm > m ? pm : m;
  const Vec a = exp2_nonpositive(splat(m - top));
  const Vec b = exp2_nonpositive(splat(pm - top));
  m = top;
  l = fma(l, a[0], pl * b[0]);
  int d = 0;
  for (; d + kLanes <= v_dim; d += kLanes) store(o + d, fma(load(o + d), a, load(po + d) * b));
  for (; d < v_dim; ++d) o[d] = fma(o[d], a[0], po[d] * b[0]);
}

void finish(float m, float l, const float* o, const float* sink, int v_dim, float* out) {
  float factor = 1.0f / l;
  if (sink) {
    const float s = *sink * kLog2E;
    const float top = s > m ? s : m;
    const float a = exp2_nonpositive(splat(m - top))[0];
    factor = a / fma(l, a, exp2_nonpositive(splat(s - top))[0]);
  }
  int d = 0;
  for (; d + kLanes <= v_dim; d += kLanes) store(out + d, load(o + d) * splat(factor));
  for (; d < v_dim; ++d) out[d] = o[d] * factor;
}

}  // namespace
}  // namespace octavo
