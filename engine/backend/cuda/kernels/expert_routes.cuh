#pragma once
#include "backend/cuda/kernels/activations.cuh"
#include "backend/cuda/kernels/product.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "ops/moe_params.h"

// Which experts a token has, which tokens an expert has, and the sum of the experts' outputs.
namespace octavo::cuda {

inline constexpr int kMaxExperts = 1024;  // a lane marks its 32 in one word
inline constexpr int kMaxChosen = 32;     // one for each lane

struct Best {
  float logit;
  int expert;
};

// The larger logit, of equals the smaller expert. NaN is never passed on.
inline __device__ Best better(Best a, Best b) {
  return b.logit > a.logit || (b.logit == a.logit && b.expert < a.expert) ? b : a;
}

// A warp, which is a block, has one token; lane l has experts l, l + 32, ...
static __global__ void __launch_bounds__(32) route_tokens(const RouteExpertsParams p) {
  constexpr unsigned kAll = 0xffffffffu;
  const int token = blockIdx.x, lane = threadIdx.x;
  const float* logits = p.logits + static_cast<int64_t>(token) * p.experts;
  int32_t* ids = p.ids + static_cast<int64_t>(token) * p.chosen;
  float* weights = p.weights + static_cast<int64_t>(token) * p.columns;

  uint32_t taken = 0;
  float top = 0.0f;
  for (int c = 0; c < p.chosen; ++c) {
    int first = kMaxExperts;  // not taken
    Best best{-INFINITY, kMaxExperts};
    for (int e = lane; e < p.experts; e += 32) {
      if (taken >> (e / 32) & 1) continue;
      first = min(first, e);
      const float logit = logits[e];
      best = better(best, {logit, e});
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      first = min(first, __shfl_xor_sync(kAll, first, lanes));
      const float logit = __shfl_xor_sync(kAll, best.logit, lanes);
      const int expert = __shfl_xor_sync(kAll, best.expert, lanes);
      best = better(best, {logit, expert});
    }
    const float logit = logits[first];
    if (logit != logit) best = {logit, first};  // nothing compares with it
    if (c == 0) top = best.logit;
    if (best.expert % 32 == lane) taken |= 1u << (best.expert / 32);
  }

  int own = -1;  // expert of place `lane`, in ascending order
  int places = 0;
  for (int e = lane; e - lane < p.experts; e += 32) {
    const unsigned votes = __ballot_sync(kAll, taken >> (e / 32) & 1);
    const int nth = lane - places, count = __popc(votes);
    if (nth >= 0 && nth < count) {
      unsigned rest = votes;
      for (int i = 0; i < nth; ++i) rest &= rest - 1;
      own = e - lane + __ffs(rest) - 1;
    }
    places += count;
  }

  const float weight = own >= 0 ? expf(logits[own] - top) : 0.0f;
  float sum = 0.0f;
  if (p.normalized) {
    for (int c = 0; c < p.chosen; ++c) sum += __shfl_sync(kAll, weight, c);
  } else {
    for (int e = lane; e < p.experts; e += 32) sum += expf(logits[e] - top);
    sum = reduce_warp<Sum>(sum);
  }
  if (own >= 0) {
    ids[lane] = own;
    weights[lane] = weight / sum;
  }
  if (p.columns > p.chosen && lane == 0) weights[p.chosen] = p.shared_gate ? sigmoid(p.shared_gate[token]) : 1.0f;
}

// A warp, which is a block, has one expert. It finds by itself where its places begin, so nothing need be counted
// first.
static __global__ void __launch_bounds__(32) group_tokens(const GroupExpertsParams p) {
  constexpr unsigned kAll = 0xffffffffu;
  const int expert = blockIdx.x, lane = threadIdx.x, choices = p.num_tokens * p.chosen;
  int before = 0;  // choices of experts before this one
  for (int i = lane; i < choices; i += 32) before += p.ids[i] < expert;
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) before += __shfl_xor_sync(kAll, before, lanes);
  if (lane == 0) p.offsets[expert] = before;
  if (expert == p.experts - 1 && lane == 0) p.offsets[p.experts] = choices;
  for (int begin = 0; begin < choices; begin += 32) {
    const int i = begin + lane;
    const bool mine = i < choices && p.ids[i] == expert;
    const unsigned votes = __ballot_sync(kAll, mine);
    if (mine) {
      const int place = before + __popc(votes & ((1u << lane) - 1));
      p.tokens[place] = i / p.chosen;
      p.rows[i / p.chosen * p.columns + i % p.chosen] = place;
    }
    before += __popc(votes);
  }
  if (p.columns == p.chosen) return;
  for (int token = expert * 32 + lane; token < p.num_tokens; token += p.experts * 32) {
    p.rows[token * p.columns + p.chosen] = choices + token;
  }
}

struct ListTilesArgs {
  const int32_t* offsets = nullptr;  // [experts + 1]
  int experts = 0;
  int tokens = 0;               // of a tile at most
  ExpertTile* tiles = nullptr;  // [count]: those that there are, then empty ones
  int count = 0;
};

// One warp cuts every expert's places into tiles.
static __global__ void __launch_bounds__(32) list_tiles(const ListTilesArgs p) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = threadIdx.x;
  int listed = 0;
  for (int begin = 0; begin < p.experts; begin += 32) {
    const int expert = begin + lane;
    const int first = expert < p.experts ? p.offsets[expert] : 0, end = expert < p.experts ? p.offsets[expert + 1] : 0;
    const int tiles = (end - first + p.tokens - 1) / p.tokens;
    int up_to = tiles;  // inclusive sum over the lanes
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int other = __shfl_up_sync(kAll, up_to, lanes);
      if (lane >= lanes) up_to += other;
    }
    for (int i = 0; i < tiles; ++i) {
      const int at = first + i * p.tokens;
      p.tiles[listed + up_to - tiles + i] = {expert, at, min(p.tokens, end - at)};
    }
    listed += __shfl_sync(kAll, up_to, 31);
  }
  for (int i = listed + lane; i < p.count; i += 32) p.tiles[i] = {0, 0, 0};
}

// A block has one token.
static __global__ void __launch_bounds__(kRowThreads) combine_tokens(const CombineExpertsParams p) {
  const int64_t token = blockIdx.x;
  const int32_t* rows = p.rows + token * p.columns;
  const float* weights = p.weights + token * p.columns;
  for (int i = threadIdx.x; i < p.dim; i += kRowThreads) {
    float sum = 0.0f;
    for (int c = 0; c < p.columns; ++c) sum = fmaf(weights[c], p.x[static_cast<int64_t>(rows[c]) * p.dim + i], sum);
    p.out[token * p.dim + i] = sum;
  }
}

}  // namespace octavo::cuda
