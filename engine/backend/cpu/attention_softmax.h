#pragma once
// The softmax of a partition's scores; included after a vector header.
#include "backend/cpu/attention_fetch.h"
#include "backend/cpu/vec_math.h"

namespace octavo {
namespace {

// A loop that fills all registers: inlined, it would share them with constants of its neighbours.
#define OCTAVO_ALONE __attribute__((noinline))

constexpr float kNegInf = -__builtin_inff();

// Scores to probabilities relative to the partition's maximum; invisible lanes become 0. All NQ queries see [lo, hi).
template <int NQ>
OCTAVO_ALONE void softmax(float* s, int lo, int hi, float softcap, float* max_out, float* sum_out) {
  const int c0 = lo / kLanes, c1 = (hi + kLanes - 1) / kLanes;
  auto at = [&](int i, int c) { return s + i * kPartition + c * kLanes; };
  if (softcap != 0.0f) {
    for (int c = c0; c < c1; ++c)
      for (int i = 0; i < NQ; ++i) store(at(i, c), splat(softcap) * tanh(load(at(i, c))));
  }
  auto hide = [&](int c) {
    VecI position;
    for (int n = 0; n < kLanes; ++n) position[n] = c * kLanes + n;
    for (int i = 0; i < NQ; ++i)
      store(at(i, c), select((position >= lo) & (position < hi), load(at(i, c)), splat(kNegInf)));
  };
  if (lo % kLanes) hide(c0);
  if (hi % kLanes) hide(c1 - 1);
  Vec top[NQ], sum[NQ];
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i) top[i] = load(at(i, c0));
  for (int c = c0 + 1; c < c1; ++c) {
#pragma GCC unroll 8
    for (int i = 0; i < NQ; ++i) top[i] = max(top[i], load(at(i, c)));
  }
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i) {
    max_out[i] = max_lanes(top[i]);
    top[i] = splat(max_out[i] == kNegInf ? 0.0f : max_out[i]);
    sum[i] = splat(0.0f);
  }
  for (int c = c0; c < c1; ++c) {
#pragma GCC unroll 8
    for (int i = 0; i < NQ; ++i) {
      const Vec p = exp2_nonpositive(load(at(i, c)) - top[i]);
      store(at(i, c), p);
      sum[i] = sum[i] + p;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i) sum_out[i] = sum_lanes(sum[i]);
}

}  // namespace
}  // namespace octavo
