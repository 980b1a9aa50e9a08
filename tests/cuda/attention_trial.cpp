// The attention, rope and copy kernels on the caller's memory and for any number of multiprocessors, for
// paged_cache.py.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "backend/cuda/attention_pieces.h"
#include "backend/cuda/launches.h"
#include "ops/attention_extent.h"

using namespace octavo;

namespace {

// Runs one op and waits for it; writes what it throws into `error`.
template <class Op>
int run(char* error, int size, Op op) {
  try {
    op();
    cuda::check(cudaDeviceSynchronize(), "the emulated device");
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(error, size, "%s", e.what());
    return 1;
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

struct TrialCache {
  std::byte* k;  // [num_blocks, kv_heads, block_size, k_dim] and scales
  std::byte* v;
  int dtype, block_size, num_blocks, kv_heads, k_dim, v_dim;
};

struct TrialAttention {
  const float* q;
  float* out;
  const int32_t* first_token;  // [num_rows] each
  const int32_t* n_tokens;
  const int32_t* first_pos;
  const int32_t* tables;  // [num_rows, width]
  int num_rows, width;
  const int32_t* group_rows;  // one group after the other
  const int32_t* group_sizes;
  const int32_t* group_partitions;
  int num_groups, heads;
  float scale;
  int window;
  float softcap;
  const float* sinks;
  int multiprocessors, shared_bytes;
  std::byte* workspace;
  size_t workspace_bytes;
};

static KvLayer layer(const TrialCache& c) {
  const auto dtype = static_cast<DType>(c.dtype);
  return {c.k,
          c.v,
          c.kv_heads * kv_head_bytes(dtype, c.block_size, c.k_dim),
          c.kv_heads * kv_head_bytes(dtype, c.block_size, c.v_dim),
          dtype,
          c.block_size,
          c.num_blocks};
}

int trial_attention(const TrialAttention* t, const TrialCache* c, char* error, int size) {
  return run(error, size, [&] {
    std::vector<AttentionRow> rows;
    for (int r = 0; r < t->num_rows; ++r)
      rows.push_back({t->first_token[r], t->n_tokens[r], t->first_pos[r], t->tables + r * t->width});
    std::vector<AttentionPrefixGroup> groups;
    const int32_t* members = t->group_rows;
    for (int g = 0; g < t->num_groups; members += t->group_sizes[g++])
      groups.push_back({members, t->group_sizes[g], t->group_partitions[g]});
    AttentionParams p;
    p.q = t->q;
    p.ldq = static_cast<int64_t>(t->heads) * c->k_dim;
    p.out = t->out;
    p.ldo = static_cast<int64_t>(t->heads) * c->v_dim;
    p.rows = rows.data();
    p.num_rows = t->num_rows;
    p.prefix_groups = groups.data();
    p.num_prefix_groups = t->num_groups;
    p.extent = attention_extent(rows, groups);
    p.heads = t->heads;
    p.kv_heads = c->kv_heads;
    p.k_dim = c->k_dim;
    p.v_dim = c->v_dim;
    p.scale = t->scale;
    p.window = t->window;
    p.softcap = t->softcap;
    p.sinks = t->sinks;
    p.cache = layer(*c);
    cuda::DeviceProperties device;
    device.multiprocessors = t->multiprocessors;
    device.shared_bytes = t->shared_bytes;
    cuda::attention({nullptr, t->workspace, t->workspace_bytes, &device}, p);
    cuda::check(cudaDeviceSynchronize(), "the emulated device");  // rows and groups end here
  });
}

int trial_partitions_per_block(int partitions, int64_t blocks, int64_t slots, double state_cost) {
  return cuda::partitions_per_block({partitions, blocks, slots, state_cost});
}

struct TrialRope {
  float* q;
  float* k;
  const float* v;
  const float* rope;
  const int32_t* positions;
  const int32_t* slots;
  int num_tokens, heads, rotary_dim;
  const float* q_norm;
  const float* k_norm;
  int together;
  float eps;
};

int trial_rope_write(const TrialRope* t, const TrialCache* c, char* error, int size) {
  return run(error, size, [&] {
    RopeWriteParams p;
    p.q = t->q;
    p.ldq = static_cast<int64_t>(t->heads) * c->k_dim;
    p.k = t->k;
    p.ldk = static_cast<int64_t>(c->kv_heads) * c->k_dim;
    p.v = t->v;
    p.ldv = static_cast<int64_t>(c->kv_heads) * c->v_dim;
    p.rope = t->rope;
    p.positions = t->positions;
    p.slots = t->slots;
    p.num_tokens = t->num_tokens;
    p.heads = t->heads;
    p.kv_heads = c->kv_heads;
    p.k_dim = c->k_dim;
    p.v_dim = c->v_dim;
    p.rotary_dim = t->rotary_dim;
    p.q_norm = t->q_norm;
    p.k_norm = t->k_norm;
    p.norm_heads_together = t->together != 0;
    p.norm_eps = t->eps;
    p.cache = layer(*c);
    cuda::rope_write({}, p);
  });
}

int trial_copy_blocks(const int32_t* copies, int count, const TrialCache* c, char* error, int size) {
  return run(error, size, [&] {
    CopyBlocksParams p;
    p.copies = reinterpret_cast<const SlotCopy*>(copies);
    p.num_copies = count;
    p.kv_heads = c->kv_heads;
    p.k_dim = c->k_dim;
    p.v_dim = c->v_dim;
    p.cache = layer(*c);
    cuda::copy_blocks({}, p);
  });
}
}
#pragma GCC visibility pop
