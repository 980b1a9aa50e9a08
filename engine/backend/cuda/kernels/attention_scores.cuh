#pragma once
// Scores and weights of a tile of queries over one partition of keys, on tensor cores. A warp scores 32 keys; the warps
// agree on the maximum through shared memory, where the weights are left as well.
#include "backend/cuda/kernels/attention_args.h"
#include "backend/cuda/kernels/attention_work.cuh"
#include "backend/cuda/kernels/cache_types.cuh"
#include "backend/cuda/kernels/softmax_state.cuh"

namespace octavo::cuda {

// kTiles: tiles of 16 queries.
template <class Cache, int kTiles>
class AttentionScores {
 public:
  static constexpr int kRows = kTileRows * kTiles;
  using Scores = float[kTiles][4][4];

 protected:
  __device__ AttentionScores(const AttentionParams& p, const AttentionSchedule& s, const AttentionWork& work,
                             std::byte* shared, int kv_head)
      : p_(p),
        s_(s),
        work_(work),
        shared_(shared),
        layout_(s.layout),
        kv_head_(kv_head),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  template <class T>
  __device__ __forceinline__ T* at(int offset) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }
  __device__ __forceinline__ int group_row() const { return lane_ / 4; }   // g of a fragment
  __device__ __forceinline__ int group_lane() const { return lane_ % 4; }  // t of a fragment
  __device__ __forceinline__ const QueryPlace& query(int row) const {
    return at<const QueryPlace>(layout_.query_table)[row];
  }
  // Row r of 2 * kTiles that this lane holds.
  __device__ __forceinline__ int fragment_row(int r) const { return kTileRows * (r / 2) + group_row() + 8 * (r % 2); }
  __device__ __forceinline__ const float* value_scales(int partition) const {
    return at<const float>(layout_.value_scales) + partition % 2 * kAttentionPartition;
  }

  // [kRows, k_dim] in 16 bits; where codes are widened the sixteen columns of a step stand as widening leaves those of
  // the keys: 4 t + {0, 1} at 2 t, 4 t + {2, 3} at 8 + 2 t.
  __device__ __forceinline__ void stage_queries() {
    auto* table = at<QueryPlace>(layout_.query_table);
    for (int i = static_cast<int>(threadIdx.x); i < kRows; i += kAttentionThreads)
      table[i] = find_query(p_, work_, kv_head_, i);
    __syncthreads();
    const int fours = p_.k_dim / 4;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * fours; i += kAttentionThreads) {
      const int row = i / fours, d = 4 * (i % fours);
      const QueryPlace place = table[row];
      float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (place.token >= 0) {
        x = *reinterpret_cast<const float4*>(p_.q + place.token * p_.ldq + static_cast<int64_t>(place.head) * p_.k_dim +
                                             d);
      }
      auto* to = at<uint32_t>(layout_.queries + row * layout_.query_stride);
      if constexpr (Cache::kScaled) {
        const int t = d % 16 / 4, step = d / 16 * 8;
        to[step + t] = Cache::pack(x.x, x.y);
        to[step + 4 + t] = Cache::pack(x.z, x.w);
      } else {
        to[d / 2] = Cache::pack(x.x, x.y);
        to[d / 2 + 1] = Cache::pack(x.z, x.w);
      }
    }
  }

  // What any query of the tile sees, and what all do; positions ascend with the queries of a row.
  __device__ __forceinline__ void find_extent() {
    if (s_.groups) {
      seen_lo_ = common_lo_ = 0;
      seen_hi_ = common_hi_ = work_.last * kAttentionPartition;
      if (p_.window > 0) common_hi_ = 0;
    } else {
      const QueryPlace &first = query(0), &last = query(work_.count - 1);
      seen_lo_ = first.lo;
      seen_hi_ = last.hi;
      common_lo_ = last.lo;
      common_hi_ = first.hi;
    }
    tiles_ = ceil_div(work_.count, kTileRows);
  }

  // 32 keys of this warp against all queries, the dimensions in ascending steps of 16.
  __device__ __forceinline__ void compute_scores(Scores& score) const {
    if (tiles_ == kTiles) {
      multiply_keys<true>(score);
    } else {
      multiply_keys<false>(score);
    }
  }

  // kFull: all tiles hold queries. Without a branch between the products their operands come early.
  template <bool kFull>
  __device__ __forceinline__ void multiply_keys(Scores& score) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) score[m][n][i] = 0.0f;
    const std::byte* query_row = shared_ + layout_.queries + lane_ % 16 * layout_.query_stride + lane_ / 16 * 16;
    const std::byte* keys = shared_ + layout_.keys + 32 * warp_ * layout_.key_stride;
    const std::byte* key_row;
    if constexpr (Cache::kScaled) {
      key_row = keys + lane_ * layout_.key_stride;
    } else {
      key_row = keys + (lane_ % 8 + lane_ / 16 * 8) * layout_.key_stride + lane_ / 8 % 2 * 16;
    }
    const int steps = p_.k_dim / 16;
#pragma unroll 2
    for (int step = 0; step < steps; ++step) {
      uint32_t b[4][2];
      if constexpr (Cache::kScaled) {
        uint32_t codes[4];
        ldmatrix_x4(codes, key_row + 16 * step);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          b[n][0] = Cache::template widen<0, 1>(codes[n]);
          b[n][1] = Cache::template widen<2, 3>(codes[n]);
        }
      } else {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint32_t r[4];
          ldmatrix_x4(r, key_row + 16 * j * layout_.key_stride + 32 * step);
          b[2 * j][0] = r[0];
          b[2 * j][1] = r[1];
          b[2 * j + 1][0] = r[2];
          b[2 * j + 1][1] = r[3];
        }
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        if (!kFull && m >= tiles_) break;
        uint32_t a[4];
        ldmatrix_x4(a, query_row + kTileRows * m * layout_.query_stride + 32 * step);
#pragma unroll
        for (int n = 0; n < 4; ++n) Cache::mma(score[m][n], a, b[n]);
      }
    }
  }

  // Calls body(score, row r of the fragment, key of the warp) for each score that this lane holds.
  template <class Body>
  __device__ __forceinline__ void each_score(Scores& score, Body body) const {
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) {
      if (r / 2 >= tiles_) break;
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) body(score[r / 2][n][2 * (r % 2) + e], r, 8 * n + 2 * group_lane() + e);
    }
  }

  // What a score is multiplied by to be one in base 2. A capped one is a tanh then.
  __device__ __forceinline__ float score_scale() const {
    return __fmul_rn(p_.softcap > 0.0f ? p_.softcap : p_.scale, kLog2E);
  }

  // Products to scores without their scale, -infinity where a query does not see the key.
  __device__ __forceinline__ void mask_scores(Scores& score, int partition) const {
    const int start = partition * kAttentionPartition, first_key = start + 32 * warp_;
    if constexpr (Cache::kScaled) {
      const float* key_scales = at<const float>(layout_.key_scales) + 32 * warp_;
      each_score(score, [&](float& s, int, int key) { s = __fmul_rn(s, key_scales[key]); });
    }
    if (p_.softcap > 0.0f) {
      const float scale = __fdiv_rn(p_.scale, p_.softcap);
      each_score(score, [&](float& s, int, int) { s = tanhf(__fmul_rn(s, scale)); });
    }
    if (first_key < common_lo_ || first_key + 32 > common_hi_) {
      each_score(score, [&](float& s, int r, int key) {
        const QueryPlace& place = query(fragment_row(r));
        if (first_key + key < place.lo || first_key + key >= place.hi) s = negative_infinity();
      });
    }
  }

  // Masks the scores of the warp's keys, if it has `mine`, and shares their maxima.
  __device__ __forceinline__ void share_maxima(Scores& score, int partition, bool mine) const {
    if (mine) mask_scores(score, partition);
    const float scale = score_scale();
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) {
      if (r / 2 >= tiles_) break;
      float top = negative_infinity(), scale_top = 0.0f;
      if (mine) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float s = score[r / 2][n][2 * (r % 2) + e];
            top = fmaxf(top, s);
            if constexpr (Cache::kScaled) {
              const float value_scale = value_scales(partition)[32 * warp_ + 8 * n + 2 * group_lane() + e];
              scale_top = fmaxf(scale_top, s == negative_infinity() ? 0.0f : value_scale);
            }
          }
        }
      }
      top = quad_max(top);
      if constexpr (Cache::kScaled) scale_top = quad_max(scale_top);
      if (group_lane() == 0) {
        const int at_row = kAttentionWarps * fragment_row(r) + warp_;
        at<float>(layout_.maxima)[at_row] = __fmul_rn(top, scale);
        if constexpr (Cache::kScaled) at<float>(layout_.scale_maxima)[at_row] = scale_top;
      }
    }
  }

  __device__ __forceinline__ static float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
  }
  __device__ __forceinline__ float max_over_warps(int offset, int row) const {
    const float4 x = at<const float4>(offset)[row];
    return fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
  }

  // Scores to weights relative to the partition's maximum, in 16 bits. The value's scale, where there is one, belongs
  // to the weight; relative to the largest one in sight, so that small ones keep their digits.
  __device__ __forceinline__ void compute_weights(Scores& score, int partition, bool mine) {
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) {
      if (r / 2 >= tiles_) break;
      const int row = fragment_row(r);
      const float max = part_max(row), top = max == negative_infinity() ? 0.0f : max;
      float inverse = 1.0f;
      if constexpr (Cache::kScaled) {
        const float largest = max_over_warps(layout_.scale_maxima, row);
        inverse = largest > 0.0f ? __fdiv_rn(1.0f, largest) : 0.0f;
      }
      float sum = 0.0f;
      if (mine) {
        const float scale = score_scale();
        auto* weights = at<uint32_t>(layout_.weights + row * layout_.weight_stride) + 16 * warp_ + group_lane();
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          float w[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float s = score[r / 2][n][2 * (r % 2) + e];
            w[e] = exp2_flushed(__fmaf_rn(s, scale, -top));
            sum = __fadd_rn(sum, w[e]);
            if constexpr (Cache::kScaled) {
              const float value_scale = value_scales(partition)[32 * warp_ + 8 * n + 2 * group_lane() + e];
              w[e] = s == negative_infinity() ? 0.0f : __fmul_rn(w[e], __fmul_rn(value_scale, inverse));
            }
          }
          weights[4 * n] = Cache::pack(w[0], w[1]);
        }
      }
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
      if (group_lane() == 0) at<float>(layout_.sums)[kAttentionWarps * row + warp_] = sum;
    }
  }

  // The maximum and the sum of the latest partition.
  __device__ __forceinline__ float part_max(int row) const { return max_over_warps(layout_.maxima, row); }
  __device__ __forceinline__ float part_sum(int row) const {
    const float4 sums = at<const float4>(layout_.sums)[row];
    return __fadd_rn(__fadd_rn(__fadd_rn(sums.x, sums.y), sums.z), sums.w);
  }

  const AttentionParams& p_;
  const AttentionSchedule& s_;
  const AttentionWork& work_;
  std::byte* shared_;
  const AttentionLayout& layout_;
  int kv_head_, warp_, lane_;
  int seen_lo_ = 0, seen_hi_ = 0;      // positions that any query of the tile sees
  int common_lo_ = 0, common_hi_ = 0;  // that all of them see
  int tiles_ = 0;                      // of 16 queries that hold any
};

}  // namespace octavo::cuda
