#pragma once
// Combines the states that the pieces of a row left, from left to right.
#include "backend/cuda/kernels/attention_args.h"
#include "backend/cuda/kernels/attention_work.cuh"
#include "backend/cuda/kernels/softmax_state.cuh"

namespace octavo::cuda {

inline constexpr int kCombineColumns = 32;  // a warp's
inline constexpr int kCombineStates = 32;   // that are on their way to a warp together

// Appends many states to one: what does not depend on the sums, maxima and factors, is found by the lanes of a warp for
// a batch of states at once, so that each state then costs one addition of the sums and one of the outputs.
class StateChain {
 public:
  struct Batch {
    float maximum, sum;            // of the state of this lane
    float output[kCombineStates];  // of each state, in this lane's column
  };

  // from: state 0 of the query; state k of the chain is state index(k) of them.
  template <class Index>
  __device__ __forceinline__ static void load(Batch& batch, const float* from, int width, int v_dim, int column,
                                              int first, int count, Index index) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool there = first + lane < count;
    const float* own = from + index(there ? first + lane : 0) * width + v_dim;
    batch.maximum = there ? own[0] : negative_infinity();
    batch.sum = there ? own[1] : 0.0f;
#pragma unroll
    for (int i = 0; i < kCombineStates; ++i) {
      const bool wanted = first + i < count && column < v_dim;
      batch.output[i] = wanted ? from[index(first + i) * width + column] : -0.0f;
    }
  }

  __device__ __forceinline__ void append(const Batch& batch, int count) {
    const unsigned all = 0xffffffffu;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float through = batch.maximum;
    for (int d = 1; d < 32; d *= 2) {
      const float before = __shfl_up_sync(all, through, d);
      if (lane >= d) through = fmaxf(through, before);
    }
    through = fmaxf(through, maximum);
    float before = __shfl_up_sync(all, through, 1);
    if (lane == 0) before = maximum;
    const Merge own = merge_maximum(before, batch.maximum);
    maximum = __shfl_sync(all, through, 31);
    // States beyond the last one are empty: kept whole, and -0 added, nothing changes.
#pragma unroll
    for (int i = 0; i < kCombineStates; ++i) {
      if (i % 8 == 0 && i >= count) break;
      const Merge f{__shfl_sync(all, own.kept, i), __shfl_sync(all, own.added, i)};
      sum = merge_sum(f, sum, __shfl_sync(all, batch.sum, i));
      output = merge_output(f, output, batch.output[i]);
    }
  }

  float maximum = negative_infinity(), sum = 0.0f, output = 0.0f;
};

// Grid: (tokens, heads * columns / (kCombineColumns * kAttentionWarps)); a warp for some columns of a head.
__global__ void __launch_bounds__(kAttentionThreads, 4) combine_attention(AttentionParams p, AttentionSchedule s) {
  int token = static_cast<int>(blockIdx.x);
  const int r = find_item(p.num_rows, token, [&](int i) { return p.rows[i].n_tokens; });
  if (r < 0) return;
  const AttentionRow row = p.rows[r];
  const int prefix = s.prefix_piece ? shared_prefix(p, r) : 0;
  const int first = max(first_partition(p, row), prefix), alone = first + s.piece;  // from there on
  const int last = ceil_div(row.first_pos + row.n_tokens, kAttentionPartition);
  const int item = static_cast<int>(blockIdx.y) * kAttentionWarps + static_cast<int>(threadIdx.x) / 32;
  const int parts = ceil_div(p.v_dim, kCombineColumns), head = item / parts;
  const int column = item % parts * kCombineColumns + static_cast<int>(threadIdx.x) % 32;
  if (last <= alone || head >= p.heads) return;
  const int hi = row.first_pos + token + 1, lo = p.window > 0 && hi > p.window ? hi - p.window : 0;
  token += row.first_token;
  const int64_t query = static_cast<int64_t>(token) * p.heads + head;
  const int width = p.v_dim + kStatePad;
  const float* states = s.state + query * s.states * width;

  // What the first piece folded, if this query saw any of it, then the partitions that stand alone.
  const int folded = prefix > 0 || lo < alone * kAttentionPartition ? 1 : 0;
  const int begin = max(alone, lo / kAttentionPartition), end = ceil_div(hi, kAttentionPartition);
  const int count = folded + max(end - begin, 0);
  const auto index = [&](int k) { return k < folded ? 0 : 1 + begin - alone + k - folded; };
  StateChain chain;
  StateChain::Batch batch, next;
  StateChain::load(batch, states, width, p.v_dim, column, 0, count, index);
  for (int done = 0; done < count; done += kCombineStates) {
    StateChain::load(next, states, width, p.v_dim, column, done + kCombineStates, count, index);
    chain.append(batch, count - done);
    batch = next;
  }
  if (column >= p.v_dim) return;
  const float factor = final_factor(chain.maximum, chain.sum, p.sinks ? p.sinks + head : nullptr);
  p.out[token * p.ldo + static_cast<int64_t>(head) * p.v_dim + column] = __fmul_rn(chain.output, factor);
}

}  // namespace octavo::cuda
