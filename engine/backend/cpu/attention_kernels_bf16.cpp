#include "backend/cpu/vec16_avx512.h"
// The vector type comes first.
#include "backend/cpu/attention_fetch.h"
#include "backend/cpu/attention_softmax.h"
#include "backend/cpu/attention_states.h"
#include "backend/cpu/attention_view.h"

// Attention over a 16-bit cache in bf16, at twice the rate of float32: queries, keys, values and probabilities are
// rounded, sums and the softmax stay float32. A dot product instruction takes two neighbours of k_dim, or of the keys,
// so a partition's keys and values are first laid out in such pairs. As in attention_micro.h every sum runs in an order
// that depends on absolute positions alone: a pair is two positions that begin at an even one.
namespace octavo {
namespace {

using Pairs = __m512bh;  // sixteen times two neighbours

constexpr int kPairs = kPartition / 2;

int pairs_of(int n) { return (n + 1) / 2; }
int vectors_of(int n) { return (n + kLanes - 1) / kLanes; }

OCTAVO_INLINE Pairs load_pairs(const uint32_t* p) { return reinterpret_cast<Pairs>(_mm512_loadu_si512(p)); }
OCTAVO_INLINE void store_pairs(uint32_t* p, Pairs v) { _mm512_storeu_si512(p, reinterpret_cast<__m512i>(v)); }
OCTAVO_INLINE Pairs splat_pair(const uint32_t* p) {
  return reinterpret_cast<Pairs>(_mm512_set1_epi32(static_cast<int32_t>(*p)));
}
OCTAVO_INLINE void add_pairs(Vec& sum, Pairs a, Pairs b) {
  sum = _mm512_dpbf16_ps(sum, a, b);
  keep_order(sum);
}

// Lane by lane (even, odd).
class Interleave {
 public:
  Interleave() {
    alignas(64) uint16_t from[32];
    for (int i = 0; i < 16; ++i) {
      from[2 * i] = static_cast<uint16_t>(i);
      from[2 * i + 1] = static_cast<uint16_t>(16 + i);
    }
    index_ = _mm512_load_si512(from);
    asm("" : "+v"(index_));
  }
  OCTAVO_INLINE Pairs operator()(Vec even, Vec odd) const {
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    return reinterpret_cast<Pairs>(_mm512_permutexvar_epi16(index_, both));
  }

 private:
  __m512i index_;
};

// A tile's scratch. ldv: v_dim in whole vectors.
struct Scratch {
  float* scores;            // [6, 128]
  float* out;               // [6, ldv]
  uint32_t* keys;           // [pairs of k_dim, 128]
  uint32_t* values;         // [64, ldv]
  uint32_t* queries;        // [query blocks, pairs of k_dim, 6]
  uint32_t* probabilities;  // [6, 64]
  int ldv;

  explicit Scratch(const AttentionTile& t) : scores(t.scratch), ldv(vectors_of(t.v_dim) * kLanes) {
    out = scores + kQueryBlock * kPartition;
    keys = reinterpret_cast<uint32_t*>(out + kQueryBlock * ldv);
    values = keys + pairs_of(t.k_dim) * kPartition;
    queries = values + kPairs * ldv;
    probabilities = queries + kMaxTileQueries * pairs_of(t.k_dim);
  }
};

// [heads, blocks, k_dim, 6] to pairs of k_dim.
void pair_queries(const AttentionTile& t, uint32_t* to) {
  alignas(32) uint16_t from[16] = {};
  for (int i = 0; i < kQueryBlock; ++i) {
    from[2 * i] = static_cast<uint16_t>(i);
    from[2 * i + 1] = static_cast<uint16_t>(kQueryBlock + i);
  }
  const __m256i index = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  const float* q = t.q;
  for (int i = 0; i < t.heads * query_blocks(t); ++i) {
    for (int d = 0; d < t.k_dim; d += 2) {
      const int count = d + 1 < t.k_dim ? 2 * kQueryBlock : kQueryBlock;
      const __m512 both = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), q);
      const auto halves = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(both));
      _mm256_mask_storeu_epi32(to, (1u << kQueryBlock) - 1, _mm256_permutexvar_epi16(index, halves));
      q += count;
      to += kQueryBlock;
    }
  }
}

template <class T, bool kSplit>
void pair_keys(const Interleave& interleave, const PartitionView<T>& view, int c0, int c1, int k_dim, uint32_t* to) {
  for (int c = c0; c < c1; ++c) {
    const KeyVector<T, kSplit> keys(view.k, c * kLanes, view.block_size, view.block_shift);
    size_t offset = 0;
    for (int d = 0; d < k_dim; d += 2, offset += 2 * static_cast<size_t>(view.block_size)) {
      const Vec odd = d + 1 < k_dim ? keys.at(offset + view.block_size) : splat(0.0f);
      store_pairs(to + d / 2 * kPartition + c * kLanes, interleave(keys.at(offset), odd));
    }
  }
}

// The columns [col, col + 16) of a row of values, beside zeros where it ends.
template <class T>
OCTAVO_INLINE Vec load_columns(const T* row, int col, int v_dim) {
  if (col + kLanes <= v_dim) return load(row + col);
  T part[kLanes] = {};
  for (int j = 0; col + j < v_dim; ++j) part[j] = row[col + j];
  return load(part);
}

// The values of positions [begin, end), zeros beside them. False: not all of them are finite.
template <class T>
bool pair_values(const Interleave& interleave, const PartitionView<T>& view, int begin, int end, int v_dim, int ldv,
                 uint32_t* to) {
  const Vec largest = splat(3.4028234664e38f);
  const auto row = [&](int key) {
    return view.v[key >> view.block_shift] + static_cast<size_t>(key & (view.block_size - 1)) * v_dim;
  };
  __mmask16 endless = 0;
  for (int key = begin & ~1; key < end; key += 2) {
    uint32_t* out = to + static_cast<size_t>(key / 2) * ldv;
    for (int col = 0; col < v_dim; col += kLanes) {
      const Vec even = key >= begin ? load_columns(row(key), col, v_dim) : splat(0.0f);
      const Vec odd = key + 1 < end ? load_columns(row(key + 1), col, v_dim) : splat(0.0f);
      endless |= _mm512_cmp_ps_mask(_mm512_abs_ps(even), largest, _CMP_NLE_UQ);
      endless |= _mm512_cmp_ps_mask(_mm512_abs_ps(odd), largest, _CMP_NLE_UQ);
      store_pairs(out + col, interleave(even, odd));
    }
  }
  return endless == 0;
}

// Where score() finds pairs of NV vectors of keys: laid out before, or in the cache.
template <int NV>
struct PairedKeys {
  const uint32_t* keys;
  OCTAVO_INLINE Pairs at(int pair, int j) const { return load_pairs(keys + pair * kPartition + j * kLanes); }
};
template <class T, bool kSplit, int NV>
struct CachedKeys {
  const Interleave& interleave;
  size_t stride;
  KeyVector<T, kSplit> keys[NV];

  OCTAVO_INLINE CachedKeys(const Interleave& pairs, const PartitionView<T>& view, int c)
      : interleave(pairs), stride(view.block_size) {
    for (int j = 0; j < NV; ++j) keys[j] = {view.k, (c + j) * kLanes, view.block_size, view.block_shift};
  }
  OCTAVO_INLINE Pairs at(int pair, int j) const {
    const size_t even = 2 * pair * stride;
    return interleave(keys[j].at(even), keys[j].at(even + stride));
  }
};

// Scores of NQ queries and the source's NV vectors of keys. s: [NQ, 128]
template <int NQ, int NV, class Source>
OCTAVO_ALONE void score(const uint32_t* q, const Source& source, Fetch& fetch, int pairs, float* s) {
  Vec acc[NQ][NV];
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[i][j] = splat(0.0f);
  for (int d = 0; d < pairs; ++d, q += kQueryBlock) {
    fetch.step(d);
    Pairs k[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) k[j] = source.at(d, j);
#pragma GCC unroll 8
    for (int i = 0; i < NQ; ++i) {
      const Pairs b = splat_pair(q + i);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) add_pairs(acc[i][j], k[j], b);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) store(s + i * kPartition + j * kLanes, acc[i][j]);
}

// source_at.operator()<NV>(c): the source of vectors [c, c + NV).
template <int NQ, class SourceAt>
OCTAVO_INLINE void score_range(const uint32_t* q, SourceAt source_at, Fetch& fetch, int c0, int c1, int pairs,
                               float* s) {
  int c = c0;
  for (; c + 4 <= c1; c += 4) score<NQ, 4>(q, source_at.template operator()<4>(c), fetch, pairs, s + c * kLanes);
  for (; c + 2 <= c1; c += 2) score<NQ, 2>(q, source_at.template operator()<2>(c), fetch, pairs, s + c * kLanes);
  for (; c < c1; ++c) score<NQ, 1>(q, source_at.template operator()<1>(c), fetch, pairs, s + c * kLanes);
}

// Where weigh() finds pairs of vectors of values: laid out before, of which `kept` is read, or in the cache.
struct PairedValues {
  const uint32_t* values;
  int ldv;
  uint32_t kept = 0xffffffffu;
  OCTAVO_INLINE Pairs at(int pair, int col) const {
    const auto all = reinterpret_cast<__m512i>(load_pairs(values + static_cast<size_t>(pair) * ldv + col));
    return reinterpret_cast<Pairs>(_mm512_and_si512(all, _mm512_set1_epi32(static_cast<int32_t>(kept))));
  }
};
template <class T>
struct CachedValues {
  const Interleave& interleave;
  const PartitionView<T>& view;
  int v_dim;
  bool even = true, odd = true;  // what is read of each pair
  OCTAVO_INLINE Pairs at(int pair, int col) const {
    const int slot = 2 * pair & (view.block_size - 1);
    const T* row = view.v[2 * pair >> view.block_shift] + static_cast<size_t>(slot) * v_dim + col;
    return interleave(even ? load(row) : splat(0.0f), odd ? load(row + v_dim) : splat(0.0f));
  }
};

// acc[i] += sum of p[i][pair] * v[pair] over pairs [first, last) ascending, for NC vectors of columns at `col`.
template <int NQ, int NC, class Source>
OCTAVO_ALONE void weigh(const uint32_t* p, const Source& source, Fetch& fetch, int first, int last, int col, float* acc,
                        int ldv, bool fresh) {
  Vec sum[NQ][NC];
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NC; ++j) sum[i][j] = fresh ? splat(0.0f) : load(acc + i * ldv + col + j * kLanes);
  for (int pair = first; pair < last; ++pair) {
    fetch.step(pair);
    Pairs v[NC];
#pragma GCC unroll 8
    for (int j = 0; j < NC; ++j) v[j] = source.at(pair, col + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < NQ; ++i) {
      const Pairs b = splat_pair(p + i * kPairs + pair);
#pragma GCC unroll 8
      for (int j = 0; j < NC; ++j) add_pairs(sum[i][j], v[j], b);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NC; ++j) store(acc + i * ldv + col + j * kLanes, sum[i][j]);
}

template <int NQ, class Source>
OCTAVO_INLINE void weigh_range(const uint32_t* p, const Source& source, Fetch& fetch, int first, int last, float* acc,
                               int ldv, bool fresh) {
  int col = 0;
  for (; col + 4 * kLanes <= ldv; col += 4 * kLanes) weigh<NQ, 4>(p, source, fetch, first, last, col, acc, ldv, fresh);
  for (; col < ldv; col += kLanes) weigh<NQ, 1>(p, source, fetch, first, last, col, acc, ldv, fresh);
}

// Queries that see [lo, hi), all of them. What they do not see is not even multiplied by 0: it may be NaN.
// source(even, odd): of each pair what the arguments say.
template <int NQ, class MakeSource>
OCTAVO_INLINE void weigh_seen(const uint32_t* p, MakeSource source, Fetch& fetch, int lo, int hi, float* acc, int ldv) {
  int first = lo / 2;
  const int whole = hi / 2;
  bool fresh = true;
  if (lo % 2) {
    weigh_range<NQ>(p, source(false, true), fetch, first, first + 1, acc, ldv, fresh);
    ++first;
    fresh = false;
  }
  if (first < whole || fresh) {
    weigh_range<NQ>(p, source(true, true), fetch, first, whole, acc, ldv, fresh);
  }
  if (hi % 2) weigh_range<NQ>(p, source(true, false), fetch, whole, whole + 1, acc, ldv, false);
}

// The visible part of a query's probabilities in bf16, zeros beside it. Vectors [c0, c1) of the partition.
OCTAVO_INLINE void round_probabilities(const float* p, int lo, int hi, int c0, int c1, uint32_t* to) {
  for (int c = c0; c < c1; ++c) {
    const bool seen = (c + 1) * kLanes > lo && c * kLanes < hi;
    const Vec values = seen ? load(p + c * kLanes) : splat(0.0f);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + c * kLanes / 2),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
  }
}

// Scores to probabilities in bf16, and the state's maximum and sum.
template <int NQ>
void find_probabilities(const AttentionTile& t, const Scratch& x, const Seen<NQ>& seen, float* m, float* l) {
  if (seen.equal()) {
    softmax<NQ>(x.scores, seen.first, seen.last, t.softcap, m, l);
  } else {
    for (int i = 0; i < NQ; ++i) {
      if (seen.lo[i] < seen.hi[i])
        softmax<1>(x.scores + i * kPartition, seen.lo[i], seen.hi[i], t.softcap, m + i, l + i);
    }
  }
  for (int i = 0; i < NQ; ++i) {
    round_probabilities(x.scores + i * kPartition, seen.lo[i], seen.hi[i], seen.first / kLanes, vectors_of(seen.last),
                        x.probabilities + i * kPairs);
  }
}

template <int NQ>
void append(const AttentionTile& t, const Scratch& x, const Seen<NQ>& seen, int i0, const float* m, const float* l) {
  for (int i = 0; i < NQ; ++i) {
    const int n = i0 + i;
    if (seen.lo[i] < seen.hi[i])
      combine(t.m[n], t.l[n], t.o + static_cast<size_t>(n) * t.v_dim, m[i], l[i], x.out + i * x.ldv, t.v_dim);
  }
}

// Queries [i0, i0 + NQ) over the partition that starts at `start`, laid out in pairs. finite: all its values are.
template <int NQ>
void query_block(const AttentionTile& t, const Scratch& x, Fetch& fetch, int i0, int start, bool finite) {
  const Seen<NQ> seen(t, i0, start);
  if (seen.first >= seen.last) return;
  const int pairs = pairs_of(t.k_dim);
  const auto keys = [&]<int NV>(int c) { return PairedKeys<NV>{x.keys + c * kLanes}; };
  score_range<NQ>(x.queries + static_cast<size_t>(i0) * pairs, keys, fetch, seen.first / kLanes, vectors_of(seen.last),
                  pairs, x.scores);
  float m[NQ], l[NQ];
  find_probabilities(t, x, seen, m, l);
  const auto values = [&](bool even, bool odd) {
    return PairedValues{x.values, x.ldv, (even ? 0xffffu : 0) | (odd ? 0xffff0000u : 0)};
  };
  if (finite) {
    weigh_range<NQ>(x.probabilities, PairedValues{x.values, x.ldv}, fetch, seen.first / 2, pairs_of(seen.last), x.out,
                    x.ldv, true);
  } else {
    for (int i = 0; i < NQ; ++i)
      weigh_seen<1>(x.probabilities + i * kPairs, values, fetch, seen.lo[i], seen.hi[i], x.out + i * x.ldv, x.ldv);
  }
  append(t, x, seen, i0, m, l);
}

// The same for one block of queries that see the same, from the cache: laid out in pairs it would be read once.
template <class T, int NQ, bool kSplit>
void lone_block(const AttentionTile& t, const Scratch& x, const Interleave& interleave, const PartitionView<T>& view,
                Fetch& fetch, int start) {
  const Seen<NQ> seen(t, 0, start);
  const auto keys = [&]<int NV>(int c) { return CachedKeys<T, kSplit, NV>(interleave, view, c); };
  score_range<NQ>(x.queries, keys, fetch, seen.first / kLanes, vectors_of(seen.last), t.k_dim / 2, x.scores);
  float m[NQ], l[NQ];
  find_probabilities(t, x, seen, m, l);
  const auto values = [&](bool even, bool odd) { return CachedValues<T>{interleave, view, t.v_dim, even, odd}; };
  weigh_seen<NQ>(x.probabilities, values, fetch, seen.lo[0], seen.hi[0], x.out, x.ldv);
  append(t, x, seen, 0, m, l);
}

template <class T, bool kSplit, int NQ = kQueryBlock>
OCTAVO_INLINE void lone_block_of(const AttentionTile& t, const Scratch& x, const Interleave& interleave,
                                 const PartitionView<T>& view, Fetch& fetch, int start) {
  if (t.count == NQ) return lone_block<T, NQ, kSplit>(t, x, interleave, view, fetch, start);
  if constexpr (NQ > 1) lone_block_of<T, kSplit, NQ - 1>(t, x, interleave, view, fetch, start);
}

template <int NQ = kQueryBlock>
OCTAVO_INLINE void query_block_of(int count, const AttentionTile& t, const Scratch& x, Fetch& fetch, int i0, int start,
                                  bool finite) {
  if (count >= NQ) return query_block<NQ>(t, x, fetch, i0, start, finite);
  if constexpr (NQ > 1) query_block_of<NQ - 1>(count, t, x, fetch, i0, start, finite);
}

template <class T>
void partitions(const AttentionTile& t, int first, int last) {
  const Scratch shared(t);
  const Interleave interleave;
  pair_queries(t, shared.queries);
  bool lone = t.count <= kQueryBlock && t.k_dim % 2 == 0 && t.v_dim % kLanes == 0;
  for (int i = 1; i < t.count; ++i) lone = lone && t.lo[i] == t.lo[0] && t.hi[i] == t.hi[0];
  each_partition<T>(
      t, first, last,
      [&](const AttentionTile& head, int h, const PartitionView<T>& view, Fetch& fetch, int start, int from, int to) {
        Scratch x = shared;
        x.queries += static_cast<size_t>(h) * query_blocks(t) * kQueryBlock * pairs_of(t.k_dim);
        const int steps = pairs_of(t.k_dim) * ((to - from + 63) / 64) + pairs_of(to - from) * ((x.ldv + 63) / 64);
        if (lone) {
          fetch.pace(steps);
          if (t.block_size < kLanes) {
            lone_block_of<T, true>(head, x, interleave, view, fetch, start);
          } else {
            lone_block_of<T, false>(head, x, interleave, view, fetch, start);
          }
          return;
        }
        if (t.block_size < kLanes) {
          pair_keys<T, true>(interleave, view, from / kLanes, vectors_of(to), t.k_dim, x.keys);
        } else {
          pair_keys<T, false>(interleave, view, from / kLanes, vectors_of(to), t.k_dim, x.keys);
        }
        const bool finite = pair_values(interleave, view, from, to, t.v_dim, x.ldv, x.values);
        for (int i = 0; i < t.count; i += kQueryBlock) {
          fetch.pace(steps * ((t.count - i + kQueryBlock - 1) / kQueryBlock));
          query_block_of(t.count - i, head, x, fetch, i, start, finite);
        }
      });
}

}  // namespace

const AttentionBf16Kernels kAttentionBf16{partitions<F16>, partitions<BF16>};

}  // namespace octavo
