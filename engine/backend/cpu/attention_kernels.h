#pragma once
#include <cstddef>
#include <cstdint>

namespace octavo {

// Queries are worked on in blocks of six: 6 x 16 accumulators fill the sixteen registers of AVX2,
// 6 x 64 the thirty-two of AVX-512.
inline constexpr int kQueryBlock = 6;
inline constexpr int kMaxTileQueries = 48;

// Positions [begin, end) of neighbouring KV heads of a sequence: partition by partition, of each head after head.
struct AttentionRead {
  const std::byte* k = nullptr;  // as in AttentionTile
  const std::byte* v = nullptr;
  const int32_t* block_table = nullptr;
  int heads = 0;
  int begin = 0;
  int end = 0;
};

// What a worker reads, tile after tile, and how far its memory has been asked for.
struct AttentionReads {
  const AttentionRead* read = nullptr;  // the one that is asked for
  const AttentionRead* last = nullptr;
  int position = 0;  // of *read: up to here, the end of a partition, its blocks are known
  int block = 0;     // the first of these blocks
  int blocks = 0;
  int head = 0;
  int run = 0;                    // of the head's keys in these blocks, then its values: those begun
  const std::byte* at = nullptr;  // in the run
  const std::byte* end = nullptr;
  int ahead = 0;  // cache lines asked for beyond the partition at hand
};

// Queries that read the same keys of one KV head, as many for each of its neighbours, and where their running softmax
// stands.
// A state (m, l, o) is the maximum, the sum and the unnormalised output over the partitions done so far, in base 2;
// an empty one has m = -infinity. Visible positions of query i: [lo[i], hi[i]).
struct AttentionTile {
  const float* q = nullptr;  // [heads, ceil(count / 6), k_dim, 6], scaled; the lanes of absent queries are never read
  int heads = 1;
  int count = 0;
  const int32_t* lo = nullptr;   // [count]
  const int32_t* hi = nullptr;   // [count]
  float* m = nullptr;            // [heads, count]
  float* l = nullptr;            // [heads, count]
  float* o = nullptr;            // [heads, count, v_dim]
  float* scratch = nullptr;      // [attention_scratch(k_dim, v_dim)]
  const std::byte* k = nullptr;  // block b of head h at k + h * k_head + b * k_stride: [k_dim, block_size], scales
  const std::byte* v = nullptr;  // likewise: [block_size, v_dim], scales
  size_t k_stride = 0;
  size_t v_stride = 0;
  size_t k_head = 0;
  size_t v_head = 0;
  const int32_t* block_table = nullptr;
  int block_size = 16;  // a multiple of 8 that divides the partition
  int k_dim = 0;
  int v_dim = 0;
  AttentionReads* reads = nullptr;
  float softcap = 0.0f;  // 0: off; else the q were divided by the cap, and this is cap * log2(e)
};

// Scores and outputs of a block of queries; then, in pairs of bf16, a partition's keys and values, the tile's queries
// and a block's probabilities.
constexpr int attention_scratch(int k_dim, int v_dim) {
  const int ldv = (v_dim + 15) / 16 * 16, pairs = (k_dim + 1) / 2;
  return kQueryBlock * (128 + ldv) + 128 * pairs + 64 * ldv + kMaxTileQueries * pairs + 64 * kQueryBlock;
}

// The inner loops of one instruction set.
struct AttentionKernels {
  // Advances the states over partitions [first, last). One function per cache type, see kv_type_index.
  void (*partitions[5])(const AttentionTile& tile, int first, int last);
  // Appends the partial state (pm, pl, po) to (m, l, o): the one formula by which partitions combine.
  void (*combine)(float& m, float& l, float* o, float pm, float pl, const float* po, int v_dim);
  // out = o / l, the sink (in natural units, null: none) counted in l.
  void (*finish)(float m, float l, const float* o, const float* sink, int v_dim, float* out);
};

// In bf16, for a cache of 16 bits.
struct AttentionBf16Kernels {
  void (*f16)(const AttentionTile& tile, int first, int last);
  void (*bf16)(const AttentionTile& tile, int first, int last);
};

extern const AttentionBf16Kernels kAttentionBf16;
extern const AttentionKernels kAttentionKernelsBaseline;
extern const AttentionKernels kAttentionKernelsAvx2;
extern const AttentionKernels kAttentionKernelsAvx512;

}  // namespace octavo
