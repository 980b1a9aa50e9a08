#pragma once
// Combines the states that the pieces of a row left, from left to right.
#include "backend/cuda/kernels/attention_args.h"
#include "backend/cuda/kernels/attention_work.cuh"
#include "backend/cuda/kernels/softmax_state.cuh"

namespace octavo::cuda {

// Grid: (tokens, heads / kAttentionWarps); a warp for each head.
template <int kColumns>  // of a lane
__global__ void __launch_bounds__(kAttentionThreads, 4) combine_attention(AttentionParams p, AttentionSchedule s) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int token = static_cast<int>(blockIdx.x);
  const int r = find_item(p.num_rows, token, [&](int i) { return p.rows[i].n_tokens; });
  if (r < 0) return;
  const AttentionRow row = p.rows[r];
  const int prefix = s.prefix_piece ? shared_prefix(p, r) : 0;
  const int first = max(first_partition(p, row), prefix), alone = first + s.piece;  // from there on
  const int last = ceil_div(row.first_pos + row.n_tokens, kAttentionPartition);
  const int head = static_cast<int>(blockIdx.y) * kAttentionWarps + static_cast<int>(threadIdx.x) / 32;
  if (last <= alone || head >= p.heads) return;
  const int hi = row.first_pos + token + 1, lo = p.window > 0 && hi > p.window ? hi - p.window : 0;
  token += row.first_token;
  const int64_t query = static_cast<int64_t>(token) * p.heads + head;
  const int width = p.v_dim + kStatePad;
  const float* states = s.state + query * s.states * width;

  float m = negative_infinity(), l = 0.0f, o[kColumns] = {};
  const auto append = [&](int index) {
    const float* from = states + static_cast<int64_t>(index) * width;
    const Merge f = merge_state(m, l, from[p.v_dim], from[p.v_dim + 1]);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (32 * i + lane < p.v_dim) o[i] = merge_output(f, o[i], from[32 * i + lane]);
    }
  };
  if (prefix > 0 || lo < alone * kAttentionPartition) append(0);
  const int end = ceil_div(hi, kAttentionPartition);
#pragma unroll 4
  for (int partition = max(alone, lo / kAttentionPartition); partition < end; ++partition)
    append(1 + partition - alone);

  const float factor = final_factor(m, l, p.sinks ? p.sinks + head : nullptr);
  float* out = p.out + token * p.ldo + static_cast<int64_t>(head) * p.v_dim;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (32 * i + lane < p.v_dim) out[32 * i + lane] = __fmul_rn(o[i], factor);
  }
}

}  // namespace octavo::cuda
