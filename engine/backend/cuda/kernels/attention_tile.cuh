#pragma once
// Attention of a tile of queries over partitions of keys of one KV head. The one kernel does decoding, prefill and
// shared prefixes: they differ in the number of rows and in who shares a tile, and no element's order of summation
// depends on either. After the weights of a partition each warp sums up its own columns of the values. Keys and values
// come by asynchronous copies, the next ones while the others are worked on.
//
// A value that is no number reaches the other queries of its own sequence in the tile; others never read it.
#include "backend/cuda/kernels/attention_scores.cuh"
#include "backend/cuda/kernels/tile_loader.cuh"

namespace octavo::cuda {

// kTiles: tiles of 16 queries; kPairs: pairs of 8 value columns per warp.
template <class Cache, int kTiles, int kPairs>
class AttentionTile : AttentionScores<Cache, kTiles> {
  using Base = AttentionScores<Cache, kTiles>;
  using Base::kRows;
  using Base::p_, Base::s_, Base::work_, Base::shared_, Base::layout_, Base::kv_head_, Base::warp_, Base::lane_;
  using Base::query, Base::fragment_row, Base::group_lane, Base::part_max, Base::part_sum;
  using Base::seen_lo_, Base::seen_hi_, Base::tiles_;
  using typename Base::Scores;

 public:
  __device__ AttentionTile(const AttentionParams& p, const AttentionSchedule& s, const AttentionWork& work,
                           std::byte* shared, int kv_head)
      : Base(p, s, work, shared, kv_head) {
    clear(o_);
  }

  __device__ __forceinline__ void run(int piece) {
    Base::stage_queries();
    const int first = work_.first + piece * s_.piece, last = min(first + s_.piece, work_.last);
    const bool cut = s_.groups || work_.last - work_.first > s_.piece;
    __syncthreads();
    Base::find_extent();
    const bool folds = piece == 0;
    // A row's first piece goes on from its prefix, in which every query sees all.
    if (folds && work_.prefix > 0) absorb_states(s_.own_states, count_states(work_.prefix, s_.prefix_piece));
    const int begin = max(first, seen_lo_ / kAttentionPartition);
    const int end = min(last, ceil_div(seen_hi_, kAttentionPartition));
    TileLoader<Cache> loader(p_, p_.rows[work_.row].block_table, shared_, layout_, kv_head_, seen_lo_, seen_hi_);
    if (begin < end) {
      loader.find_blocks(begin);
      if (begin + 1 < end) loader.find_blocks(begin + 1);
      __syncthreads();
      loader.load_keys(begin);
      if (!s_.single_buffer) loader.load_values(begin);
    }
    for (int partition = begin; partition < end; ++partition) {
      run_partition(loader, partition, end, folds ? 0 : own_state(partition - first + 1, piece));
    }
    if (!cut) {
      write_output();
    } else if (folds && (begin < end || work_.prefix > 0)) {
      store_state(own_state(0, 0), maximum_, sum_, o_);
    }
  }

 private:
  using Output = float[kPairs][kTiles][2][4];

  static __device__ __forceinline__ void clear(Output& o) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) o[j][m][n][i] = 0.0f;
  }

  // Pairs beyond the last column are computed as the first one is, and never written: no branch divides the products.
  __device__ __forceinline__ bool holds_pair(int j) const { return 16 * (j * kAttentionWarps + warp_) < p_.v_dim; }
  __device__ __forceinline__ int pair_column(int j) const {
    return holds_pair(j) ? 16 * (j * kAttentionWarps + warp_) : 0;
  }

  // Adds the partition to the state so far, or stores its own state where there is an index for it.
  __device__ __forceinline__ void run_partition(TileLoader<Cache>& loader, int partition, int end, int state_index) {
    const int start = partition * kAttentionPartition;
    const int key_begin = max(seen_lo_ - start, 0), key_end = min(seen_hi_ - start, kAttentionPartition);
    const bool more = partition + 1 < end;
    wait_for_copies();
    __syncthreads();  // the keys are there
    Scores score;
    const bool mine = 32 * warp_ < key_end && 32 * warp_ + 32 > key_begin;
    if (mine) Base::compute_scores(score);
    Base::share_maxima(score, partition, mine);
    __syncthreads();  // the maxima are there, the keys no longer needed
    if (s_.single_buffer) {
      loader.load_values(partition);
    } else if (more) {
      loader.load_keys(partition + 1);
    } else {
      cp_async_commit();
    }
    Base::compute_weights(score, partition, mine);
    Merge merge{};
    if (state_index == 0 && owns_row()) {
      merge = merge_maximum(maximum_, part_max(own_row()));
      factors()[own_row()] = merge;
    }
    wait_for_copies();
    __syncthreads();  // the values are there, the weights and the factors
    if (tiles_ == kTiles) {
      sum_values<true>(key_begin, key_end);
    } else {
      sum_values<false>(key_begin, key_end);
    }
    if (state_index == 0) {
      if (owns_row()) sum_ = merge_sum(merge, sum_, part_sum(own_row()));
      append();
    } else {
      store_state(state_index, owns_row() ? part_max(own_row()) : 0.0f, owns_row() ? part_sum(own_row()) : 0.0f, part_);
    }
    __syncthreads();  // the values and what the warps told each other are no longer needed
    if (partition + 2 < end) loader.find_blocks(partition + 2);
    if (s_.single_buffer) {
      if (more) loader.load_keys(partition + 1);
    } else if (more) {
      loader.load_values(partition + 1);
    } else {
      cp_async_commit();
    }
  }

  // With two buffers the latest group is that of the other one.
  __device__ __forceinline__ void wait_for_copies() const {
    if (s_.single_buffer) {
      cp_async_wait<0>();
    } else {
      cp_async_wait<1>();
    }
  }

  // Weights times the warp's columns of the values, the keys in ascending steps of 16.
  template <bool kFull>  // as in multiply_keys
  __device__ __forceinline__ void sum_values(int key_begin, int key_end) {
    clear(part_);
    const std::byte* weight_row = shared_ + layout_.weights + lane_ % 16 * layout_.weight_stride + lane_ / 16 * 16;
    for (int keys = key_begin / 32 * 32; keys < key_end; keys += 32) {
      uint32_t codes[kPairs][4];
      if constexpr (Cache::kScaled) {
#pragma unroll
        for (int j = 0; j < kPairs; ++j) load_codes(codes[j], keys, pair_column(j));
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        uint32_t b[kPairs][2][2];  // [pair, tile]
#pragma unroll
        for (int j = 0; j < kPairs; ++j) {
          if constexpr (Cache::kScaled) {
            widen_codes(b[j], codes[j][2 * step], codes[j][2 * step + 1]);
          } else {
            load_values(b[j], keys + 16 * step, pair_column(j));
          }
        }
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          if (!kFull && m >= tiles_) break;
          uint32_t a[4];
          ldmatrix_x4(a, weight_row + kTileRows * m * layout_.weight_stride + 2 * (keys + 16 * step));
#pragma unroll
          for (int j = 0; j < kPairs; ++j) {
#pragma unroll
            for (int n = 0; n < 2; ++n) Cache::mma(part_[j][m][n], a, b[j][n]);
          }
        }
      }
    }
    if constexpr (Cache::kScaled) {
#pragma unroll
      for (int r = 0; r < 2 * kTiles; ++r) {
        if (r / 2 >= tiles_) break;
        const float largest = Base::max_over_warps(layout_.scale_maxima, fragment_row(r));
#pragma unroll
        for (int j = 0; j < kPairs; ++j)
#pragma unroll
          for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              float& o = part_[j][r / 2][n][2 * (r % 2) + e];
              o = __fmul_rn(o, largest);
            }
      }
    }
  }

  // 16 keys by 16 columns.
  __device__ __forceinline__ void load_values(uint32_t (&b)[2][2], int keys, int column) const {
    const std::byte* values = shared_ + layout_.values + keys * layout_.value_stride + column * Cache::kBytes;
    uint32_t r[4];
    ldmatrix_x4_trans(r, values + lane_ % 16 * layout_.value_stride + lane_ / 16 * 16);
    b[0][0] = r[0];
    b[0][1] = r[1];
    b[1][0] = r[2];
    b[1][1] = r[3];
  }
  // 32 keys by 16 columns; a register holds two keys by two columns. The even columns become the first tile, the odd
  // ones the second.
  __device__ __forceinline__ void load_codes(uint32_t (&codes)[4], int keys, int column) const {
    ldmatrix_x4_trans(codes, shared_ + layout_.values + (keys + lane_) * layout_.value_stride + column);
  }
  __device__ __forceinline__ static void widen_codes(uint32_t (&b)[2][2], uint32_t low, uint32_t high) {
    b[0][0] = Cache::template widen<0, 2>(low);
    b[0][1] = Cache::template widen<0, 2>(high);
    b[1][0] = Cache::template widen<1, 3>(low);
    b[1][1] = Cache::template widen<1, 3>(high);
  }

  // One thread keeps the maximum and the sum of a row; the others learn by which factors the outputs are merged.
  __device__ __forceinline__ bool owns_row() const { return own_row() < kTileRows * tiles_; }
  __device__ __forceinline__ static int own_row() { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ Merge* factors() const { return Base::template at<Merge>(layout_.factors); }

  __device__ __forceinline__ void append() {
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) {
      if (r / 2 >= tiles_) break;
      const Merge f = factors()[fragment_row(r)];
#pragma unroll
      for (int j = 0; j < kPairs; ++j)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int i = 2 * (r % 2) + e;
            o_[j][r / 2][n][i] = merge_output(f, o_[j][r / 2][n][i], part_[j][r / 2][n][i]);
          }
    }
  }

  // Column of element e of tile n of a pair: codes were split into even and odd ones.
  __device__ __forceinline__ int column(int j, int n, int e) const {
    if constexpr (Cache::kScaled) return pair_column(j) + 4 * group_lane() + 2 * e + n;
    return pair_column(j) + 8 * n + 2 * group_lane() + e;
  }

  __device__ __forceinline__ float* state(const QueryPlace& place, int index) const {
    const int64_t at = (static_cast<int64_t>(place.token) * p_.heads + place.head) * s_.states + index;
    return s_.state + at * (p_.v_dim + kStatePad);
  }
  // Where the `index`-th state of this launch's piece goes; index 0: what the first piece folded.
  __device__ __forceinline__ int own_state(int index, int piece) const {
    return (s_.groups ? s_.own_states : 0) + index + (piece > 0 ? (piece - 1) * s_.piece : 0);
  }

  // m, l: of the thread's own row.
  __device__ __forceinline__ void store_state(int index, float m, float l, const Output& o) const {
    if (owns_row() && query(own_row()).token >= 0) {
      float* to = state(query(own_row()), index);
      to[p_.v_dim] = m;
      to[p_.v_dim + 1] = l;
    }
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) {
      if (r / 2 >= tiles_) break;
      const QueryPlace place = query(fragment_row(r));
      if (place.token >= 0) write_row(state(place, index), r, o, 1.0f);
    }
  }

  // Appends stored states, a few at a time: first their factors, where the weights will be, then their outputs.
  __device__ __forceinline__ void absorb_states(int first, int count) {
    auto* merges = Base::template at<Merge>(layout_.weights);  // [kAbsorbed, kRows]
    for (int base = 0; base < count; base += kAbsorbed) {
      const int batch = min(kAbsorbed, count - base);
      if (owns_row()) {
        const QueryPlace place = query(own_row());
        for (int i = 0; i < batch; ++i) {
          Merge f{1.0f, 0.0f};
          if (place.token >= 0) {
            const float* from = state(place, first + base + i) + p_.v_dim;
            f = merge_maximum(maximum_, from[0]);
            sum_ = merge_sum(f, sum_, from[1]);
          }
          merges[i * kRows + own_row()] = f;
        }
      }
      __syncthreads();
#pragma unroll(kAbsorbed / kTiles)
      for (int i = 0; i < batch; ++i) absorb_output(first + base + i, merges + i * kRows);
      __syncthreads();
    }
  }
  __device__ __forceinline__ void absorb_output(int index, const Merge* merges) {
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) {
      if (r / 2 >= tiles_) break;
      const QueryPlace place = query(fragment_row(r));
      if (place.token < 0) continue;
      const Merge f = merges[fragment_row(r)];
      const float* from = state(place, index);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        if (!holds_pair(j)) continue;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& o = o_[j][r / 2][n][2 * (r % 2) + e];
            o = merge_output(f, o, from[column(j, n, e)]);
          }
      }
    }
  }

  __device__ __forceinline__ void write_output() const {
    if (owns_row()) {
      const QueryPlace place = query(own_row());
      factors()[own_row()].kept = final_factor(maximum_, sum_, p_.sinks ? p_.sinks + place.head : nullptr);
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) {
      if (r / 2 >= tiles_) break;
      const QueryPlace place = query(fragment_row(r));
      if (place.token < 0) continue;
      write_row(p_.out + place.token * p_.ldo + static_cast<int64_t>(place.head) * p_.v_dim, r, o_,
                factors()[fragment_row(r)].kept);
    }
  }

  // This lane's columns of a row.
  __device__ __forceinline__ void write_row(float* to, int r, const Output& o, float factor) const {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      if (!holds_pair(j)) continue;
      const int i = 2 * (r % 2);
      const auto& pair = o[j][r / 2];
      const float x[4] = {__fmul_rn(pair[0][i], factor), __fmul_rn(pair[0][i + 1], factor),
                          __fmul_rn(pair[1][i], factor), __fmul_rn(pair[1][i + 1], factor)};
      if constexpr (Cache::kScaled) {
        *reinterpret_cast<float4*>(to + column(j, 0, 0)) = make_float4(x[0], x[2], x[1], x[3]);
      } else {
        *reinterpret_cast<float2*>(to + column(j, 0, 0)) = make_float2(x[0], x[1]);
        *reinterpret_cast<float2*>(to + column(j, 1, 0)) = make_float2(x[2], x[3]);
      }
    }
  }

  static constexpr int kAbsorbed = 4;

  Output o_;                                          // over the partitions so far, not yet divided by the sum
  Output part_;                                       // of the latest partition
  float maximum_ = negative_infinity(), sum_ = 0.0f;  // over the partitions so far, of the thread's own row
};

// Grid: (tiles of queries, KV heads, pieces of partitions).
template <class Cache, int kTiles, int kPairs>
__global__ void __launch_bounds__(kAttentionThreads, attention_residency(kTiles))
    attention_tiles(AttentionParams p, AttentionSchedule s) {
  constexpr int kRows = kTileRows * kTiles;
  // The last tiles of a row read the most: they begin first.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x), piece = static_cast<int>(blockIdx.z);
  const AttentionWork work = s.groups ? find_group_work(p, tile, kRows) : find_row_work(p, s, tile, kRows);
  if (work.count == 0 || (piece > 0 && work.first + piece * s.piece >= work.last)) return;
  AttentionTile<Cache, kTiles, kPairs> block(p, s, work, dynamic_shared<std::byte>(), static_cast<int>(blockIdx.y));
  block.run(piece);
}

}  // namespace octavo::cuda
