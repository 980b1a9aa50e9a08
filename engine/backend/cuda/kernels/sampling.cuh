#pragma once
#include "backend/cuda/kernels/draw_row.cuh"
#include "backend/cuda/kernels/draw_stages.cuh"

// Drawing a token from a row of logits as sample/sampler.h defines it: the same integers, so the same token.
namespace octavo::cuda {

// What the filters leave: tokens from the key `cut` on that weigh at least `min_weight`.
struct Left {
  const float* row;
  int n;
  Weigh weigh;
  Key cut;
  unsigned min_weight;

  __device__ unsigned mass(int token) const {
    const unsigned weight = weigh(row[token]);
    return weight >= min_weight && order_key(row[token], token) >= cut ? weight : 0;
  }
};

// The fewest of the best that hold the share top_p of the mass.
__device__ inline Key cut_of_mass(Candidates candidates, float top_p, const Weigh& weigh, DrawScratch& s) {
  const auto weight = [&](Key key) -> Mass { return weigh(key_logit(key)); };
  const auto mass = [&](const Candidates& c) {
    Mass own = 0;
    c.each(s, [&](Key key) { own += weight(key); });
    return sum_block(own, s);
  };
  const Mass total = mass(candidates);
  Mass need = static_cast<Mass>(ceil(static_cast<double>(top_p) * static_cast<double>(total)));
  need = need < 1 ? 1 : need > total ? total : need;
  if (candidates.floor == 0) {
    // Few tokens hold nearly everything. What is 24 temperatures below the largest logit weighs nothing.
    for (float depth = 3.0f;; depth *= 2.0f) {
      const Key floor = static_cast<Key>(ordered(weigh.max - depth / weigh.scale)) << 32;
      candidates = list_candidates(candidates.row, candidates.n, floor, s);
      if (mass(candidates) >= need) break;
    }
  }
  return cut_at(candidates, need, weight, s);
}

__device__ inline Key cut_of_filters(const float* row, int n, const Weigh& weigh, const DrawRow& r, DrawScratch& s) {
  Candidates candidates{row, n, 0, false};
  if (r.top_k > 0 && r.top_k < n) {
    candidates = list_candidates(row, n, floor_of_top(row, n, r.top_k, s), s);
    candidates.floor = cut_of_top(candidates, r.top_k, s);
  }
  if (!(r.top_p < 1.0f)) return candidates.floor;
  return cut_of_mass(candidates, r.top_p, weigh, s);
}

// The token at which the cumulative mass, over ascending ids, passes the share `random` / 2^64 of the whole.
__device__ inline int invert(const Left& left, uint64_t random, DrawScratch& s) {
  int begin = 0, end = left.n;
  Mass target = 0;
  for (bool first = true; first || end - begin > 32; first = false) {
    const int share = (end - begin + kDrawThreads - 1) / kDrawThreads * 32;  // of a warp
    const int from = begin + draw_warp() * share, to = min(from + share, end);
    Mass own = 0;
    for (int i = from + draw_lane(); i < to; i += 32) own += left.mass(i);
    for (int lanes = 16; lanes > 0; lanes /= 2) own += __shfl_xor_sync(kAllLanes, own, lanes);
    __syncthreads();
    if (draw_lane() == 0) s.reduced[draw_warp()] = own;
    __syncthreads();
    if (first) {
      Mass total = 0;
      for (int w = 0; w < kDrawWarps; ++w) total += s.reduced[w];
      target = static_cast<Mass>(static_cast<unsigned __int128>(random) * total >> 64);
    }
    int w = 0;
    while (w + 1 < kDrawWarps && target >= s.reduced[w]) target -= s.reduced[w++];
    begin += w * share;
    end = min(begin + share, end);
  }
  const int i = begin + draw_lane();
  Mass through = i < end ? left.mass(i) : 0;
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const Mass before = __shfl_up_sync(kAllLanes, through, lanes);
    if (draw_lane() >= lanes) through += before;
  }
  return begin + __ffs(static_cast<int>(__ballot_sync(kAllLanes, target < through))) - 1;
}

__device__ inline int draw_token(const float* row, int n, Key best, const DrawRow& r, DrawScratch& s) {
  if (r.mode == DrawMode::kGreedy) return key_token(best);
  const Weigh weigh{key_logit(best), r.scale};
  return invert({row, n, weigh, cut_of_filters(row, n, weigh, r, s), r.min_weight}, r.random, s);
}

// What the log-probability of `token` is made of (none where it is -1), and the likeliest tokens.
__device__ inline void score_row(const float* raw, int n, Key best, int token, const DrawRow& r, uint64_t* keys,
                                 DrawnToken& out, DrawScratch& s) {
  out.max = key_logit(best);
  double sum = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kDrawThreads)
    sum += static_cast<double>(exp_nonpositive(__fsub_rn(raw[i], out.max)));
  out.sum_exp = reduce_block(sum, s.reduced_real, [](double a, double b) { return a + b; });
  if (token >= 0) {
    out.logit = raw[token];
    Mass greater = 0;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kDrawThreads) greater += raw[i] > out.logit;
    out.rank = 1 + static_cast<int32_t>(sum_block(greater, s));
  }
  const int count = min(r.num_best, n);
  if (count <= 0) return;
  Candidates candidates = list_candidates(raw, n, floor_of_top(raw, n, count, s), s);
  candidates.floor = cut_of_top(candidates, count, s);
  __syncthreads();
  if (threadIdx.x == 0) s.floor = 0;
  __syncthreads();
  candidates.each(s, [&](Key key) { keys[atomicAdd(&s.floor, 1u)] = key; });
}

// A block draws from one row.
__global__ void __launch_bounds__(kDrawThreads) draw_kernel(DrawParams p) {
  __shared__ DrawScratch s;
  const DrawRow& r = p.rows[blockIdx.x];
  const float* raw = p.logits + static_cast<size_t>(r.logits) * static_cast<size_t>(p.vocab);
  DrawnToken out;
  take_last_token(r, p.tokens);
  const RowMax scan = scan_row(raw, p.vocab, s);
  const float* row = raw;
  Key best = scan.key;
  if (!scan.finite || key_logit(scan.key) == -INFINITY) {
    out.status = DrawStatus::kNonFinite;
  } else if (r.changed >= 0) {
    float* changed = p.changed + static_cast<size_t>(r.changed) * static_cast<size_t>(p.vocab);
    change_logits(raw, changed, p.vocab, r);
    row = changed;
    const RowMax rest = scan_row(row, p.vocab, s);
    best = rest.key;
    if (!rest.finite) {
      out.status = DrawStatus::kNonFinite;
    } else if (key_logit(best) == -INFINITY) {
      out.status = DrawStatus::kAllMasked;
    }
  }
  if (out.status == DrawStatus::kOk) {
    if (r.mode != DrawMode::kNone) out.token = draw_token(row, p.vocab, best, r, s);
    const int token = !r.scored ? -1 : r.mode == DrawMode::kNone ? r.score_token : out.token;
    if (r.scored || r.num_best > 0) score_row(raw, p.vocab, scan.key, token, r, p.best + r.best, out, s);
  }
  if (threadIdx.x == 0) p.drawn[blockIdx.x] = out;
}

__global__ void take_tokens_kernel(TakeTokensParams p) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < p.num_tokens && p.sources[i] >= 0) p.tokens[i] = p.drawn[p.sources[i]].token;
}

}  // namespace octavo::cuda
