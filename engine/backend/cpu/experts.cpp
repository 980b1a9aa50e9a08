#include "backend/cpu/experts.h"

#include <algorithm>
#include <cmath>

namespace octavo::cpu {

namespace {

constexpr int kTokensPerTile = 16;

// The `count` largest of n logits, into ids in ascending order; of equals, or where none compares (NaN), the first.
void choose(const float* logits, int n, int count, int32_t* ids) {
  for (int c = 0; c < count; ++c) {
    int best = -1;
    for (int e = 0; e < n; ++e) {
      if (std::find(ids, ids + c, e) != ids + c) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    ids[c] = best;
  }
  std::sort(ids, ids + count);
}

void route(const RouteExpertsParams& p, int token) {
  const float* logits = p.logits + static_cast<int64_t>(token) * p.experts;
  int32_t* ids = p.ids + static_cast<int64_t>(token) * p.chosen;
  float* weights = p.weights + static_cast<int64_t>(token) * p.columns;
  choose(logits, p.experts, p.chosen, ids);
  const float top = *std::max_element(logits, logits + p.experts);
  float sum = 0.0f;
  for (int c = 0; c < p.chosen; ++c) sum += weights[c] = std::exp(logits[ids[c]] - top);
  if (!p.normalized) {
    sum = 0.0f;
    for (int e = 0; e < p.experts; ++e) sum += std::exp(logits[e] - top);
  }
  for (int c = 0; c < p.chosen; ++c) weights[c] /= sum;
  if (p.columns > p.chosen) {
    weights[p.chosen] = p.shared_gate ? 1.0f / (1.0f + std::exp(-p.shared_gate[token])) : 1.0f;
  }
}

}  // namespace

void route_experts(CpuQueue& queue, const RouteExpertsParams& p) {
  queue.pool().run((p.num_tokens + kTokensPerTile - 1) / kTokensPerTile, [&](int tile, int) {
    const int end = std::min(p.num_tokens, (tile + 1) * kTokensPerTile);
    for (int token = tile * kTokensPerTile; token < end; ++token) route(p, token);
  });
}

void group_experts(const GroupExpertsParams& p) {
  std::fill_n(p.offsets, p.experts + 1, 0);
  for (int i = 0; i < p.num_tokens * p.chosen; ++i) ++p.offsets[p.ids[i] + 1];
  for (int e = 0; e < p.experts; ++e) p.offsets[e + 1] += p.offsets[e];
  for (int t = 0; t < p.num_tokens; ++t) {
    for (int c = 0; c < p.chosen; ++c) {
      const int32_t place = p.offsets[p.ids[t * p.chosen + c]]++;
      p.tokens[place] = t;
      p.rows[t * p.columns + c] = place;
    }
    if (p.columns > p.chosen) p.rows[t * p.columns + p.chosen] = p.num_tokens * p.chosen + t;
  }
  // Every offset has moved to the next one's place.
  std::copy_backward(p.offsets, p.offsets + p.experts, p.offsets + p.experts + 1);
  p.offsets[0] = 0;
}

void combine_experts(CpuQueue& queue, const Kernels& kernels, const CombineExpertsParams& p) {
  queue.pool().run(p.num_tokens, [&](int token, int) {
    float* out = p.out + static_cast<int64_t>(token) * p.dim;
    std::fill_n(out, p.dim, 0.0f);
    for (int c = 0; c < p.columns; ++c) {
      const int64_t at = static_cast<int64_t>(token) * p.columns + c;
      kernels.rows.add_scaled(out, p.x + static_cast<int64_t>(p.rows[at]) * p.dim, p.weights[at], p.dim);
    }
  });
}

}  // namespace octavo::cpu
