#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/kv_element.h"

namespace octavo::cpu {
namespace {

// Softmax state of one token and head. Partitions are computed from scratch and merged left to right.
struct Partial {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
  float* acc = nullptr;  // [v_dim]
};

float score(const AttentionParams& p, const float* q, const std::byte* k_head, int slot) {
  float dot = 0.0f;
  for (int d = 0; d < p.k_dim; ++d) {
    dot += q[d] * load_kv(p.cache.dtype, k_head, static_cast<size_t>(d) * p.cache.block_size + slot);
  }
  dot *= p.scale;
  return p.softcap > 0.0f ? p.softcap * std::tanh(dot / p.softcap) : dot;
}

void attend_partition(const AttentionParams& p, const AttentionRow& row, const float* q, int kv_head, int begin,
                      int end, float* scores, Partial& out) {
  const KvLayer& cache = p.cache;
  const size_t element = dtype_size(cache.dtype), size = cache.block_size;
  for (int i = begin; i < end; ++i) {
    const std::byte* k = cache.k + row.block_table[i / size] * cache.k_stride + kv_head * p.k_dim * size * element;
    scores[i - begin] = score(p, q, k, i % size);
    out.max = std::max(out.max, scores[i - begin]);
  }
  std::fill(out.acc, out.acc + p.v_dim, 0.0f);
  for (int i = begin; i < end; ++i) {
    const float weight = std::exp(scores[i - begin] - out.max);
    out.sum += weight;
    const std::byte* v = cache.v + row.block_table[i / size] * cache.v_stride + kv_head * p.v_dim * size * element;
    for (int d = 0; d < p.v_dim; ++d) out.acc[d] += weight * load_kv(cache.dtype, v, (i % size) * p.v_dim + d);
  }
}

void merge(Partial& total, const Partial& part, int v_dim) {
  const float max = std::max(total.max, part.max);
  const float a = std::exp(total.max - max), b = std::exp(part.max - max);
  total.sum = total.sum * a + part.sum * b;
  for (int d = 0; d < v_dim; ++d) total.acc[d] = total.acc[d] * a + part.acc[d] * b;
  total.max = max;
}

}  // namespace

size_t attention_workspace(const WorkspaceLimits& limits, int threads) {
  return static_cast<size_t>(threads) * (kAttentionPartition + 2 * limits.max_head_dim) * sizeof(float);
}

void attention(CpuQueue& queue, const Kernels&, const AttentionParams& p) {
  const size_t per_worker = kAttentionPartition + 2 * p.v_dim;
  auto* scratch = reinterpret_cast<float*>(queue.workspace(queue.pool().threads() * per_worker * sizeof(float)));
  for (int r = 0; r < p.num_rows; ++r) {
    const AttentionRow& row = p.rows[r];
    queue.pool().run(row.n_tokens * p.heads, [&](int tile, int worker) {
      const int t = tile / p.heads, head = tile % p.heads, kv_head = head / (p.heads / p.kv_heads);
      const int last = row.first_pos + t;
      const int first = p.window > 0 ? std::max(0, last - p.window + 1) : 0;
      float* scores = scratch + worker * per_worker;
      const float* q = p.q + (row.first_token + t) * p.ldq + head * p.k_dim;
      Partial total, part;
      total.acc = scores + kAttentionPartition;
      part.acc = total.acc + p.v_dim;
      std::fill(total.acc, total.acc + p.v_dim, 0.0f);
      for (int base = first / kAttentionPartition * kAttentionPartition; base <= last; base += kAttentionPartition) {
        part.max = -std::numeric_limits<float>::infinity();
        part.sum = 0.0f;
        attend_partition(p, row, q, kv_head, std::max(base, first), std::min(base + kAttentionPartition, last + 1),
                         scores, part);
        merge(total, part, p.v_dim);
      }
      if (p.sinks) {
        const float max = std::max(total.max, p.sinks[head]);
        const float a = std::exp(total.max - max);
        total.sum = total.sum * a + std::exp(p.sinks[head] - max);
        for (int d = 0; d < p.v_dim; ++d) total.acc[d] *= a;
      }
      float* out = p.out + (row.first_token + t) * p.ldo + head * p.v_dim;
      for (int d = 0; d < p.v_dim; ++d) out[d] = total.acc[d] / total.sum;
    });
  }
}

}  // namespace octavo::cpu
