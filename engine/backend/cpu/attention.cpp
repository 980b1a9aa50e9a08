#include "backend/cpu/attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/cpu/attention_plan.h"

namespace octavo::cpu {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;

// Long sequences that one step can spread over all threads.
constexpr int kCutRows = 4;

// One job takes several tiles of few queries.
constexpr int kJobsPerThread = 8;
constexpr int kMaxJobItems = 8;

// After those of its job a worker asks for the memory of so many more, which are likely its own.
constexpr int kItemsAhead = 2;

// A tile for neighbouring KV heads.
struct Item {
  const QueryTile* tile;
  int kv_head;  // the first
  int heads;
};

// One worker at one item after another.
class TileRunner {
 public:
  TileRunner(const AttentionParams& p, const AttentionKernels& kernels, const AttentionPlan& plan, int worker)
      : p_(p), kernels_(kernels), plan_(plan), per_kv_head_(p.heads / p.kv_heads) {
    auto* next = reinterpret_cast<float*>(plan.workers + worker * plan.worker_bytes);
    auto take = [&next](size_t n) { return std::exchange(next, next + n); };
    scratch_ = take(attention_scratch(p.k_dim, p.v_dim));
    q_ = take(static_cast<size_t>(kMaxTileQueries) * p.k_dim);
    o_ = take(static_cast<size_t>(kMaxTileQueries) * p.v_dim);
    m_ = take(kMaxTileQueries);
    l_ = take(kMaxTileQueries);
    lo_ = reinterpret_cast<int32_t*>(take(kMaxTileQueries));
    hi_ = reinterpret_cast<int32_t*>(take(kMaxTileQueries));
    queries_ = reinterpret_cast<TileQuery*>(next);
  }

  // What this worker comes to after what it was told before. A partition of the first is taken to be at hand.
  void expect(const Item& item) {
    const AttentionRead& read = coming_[num_coming_++] = read_of(item);
    reads_.last = coming_ + num_coming_;
    if (num_coming_ > 1) return;
    reads_.read = coming_;
    reads_.position = std::min(read.end, read.begin / kAttentionPartition * kAttentionPartition + kAttentionPartition);
    reads_.block = read.begin / p_.cache.block_size;
    reads_.blocks = read.begin < read.end ? (reads_.position - 1) / p_.cache.block_size + 1 - reads_.block : 0;
    reads_.run = 2 * reads_.blocks;
  }

  // Items in the order in which they were expected.
  void run(const Item& item) {
    const QueryTile& tile = *item.tile;
    find_queries(item);
    clear();
    const RowPartials& row = plan_.rows[queries_[0].row];
    if (tile.finishes) {
      append_partials();
      if (row.own_count == 0) compute(tile.first, tile.last, item.kv_head);
      finish();
    } else if (tile.group >= 0 && row.prefix_count == 1) {
      compute(tile.first, tile.last, item.kv_head);
      store_states(tile, 0);
    } else {
      for (int partition = tile.first; partition < tile.last; ++partition) {
        compute(partition, partition + 1, item.kv_head);
        store_states(tile, partition);
        clear();
      }
    }
  }

 private:
  size_t k_head() const { return kv_head_bytes(p_.cache.dtype, p_.cache.block_size, p_.k_dim); }
  size_t v_head() const { return kv_head_bytes(p_.cache.dtype, p_.cache.block_size, p_.v_dim); }

  // Where the cache of a KV head begins.
  std::byte* keys(int kv_head) const { return p_.cache.k + kv_head * k_head(); }
  std::byte* values(int kv_head) const { return p_.cache.v + kv_head * v_head(); }

  // What the queries of a tile see.
  AttentionRead read_of(const Item& item) const {
    const QueryTile& tile = *item.tile;
    const int r = tile.group < 0 ? tile.member : p_.prefix_groups[tile.group].rows[tile.member];
    if (tile.finishes && plan_.rows[r].own_count > 0) return {};
    const AttentionRow& row = p_.rows[r];
    const int seen = row.first_pos + tile.token + 1;
    const int begin = std::max(tile.first * kAttentionPartition, p_.window > 0 ? seen - p_.window : 0);
    int end = tile.last * kAttentionPartition;
    if (tile.group < 0) end = std::min(end, seen + (tile.head + tile.count - 1) / per_kv_head_);
    return {keys(item.kv_head), values(item.kv_head), row.block_table, item.heads, begin, end};
  }

  void find_queries(const Item& item) {
    const QueryTile& tile = *item.tile;
    heads_ = item.heads;
    count_ = tile.count;
    packed_ = false;
    int member = tile.member, token = tile.token, head = tile.head;
    auto row_of = [&] { return tile.group < 0 ? member : p_.prefix_groups[tile.group].rows[member]; };
    for (int i = 0; i < count_; ++i) {
      while (token == p_.rows[row_of()].n_tokens) {
        ++member;
        token = 0;
      }
      for (int h = 0; h < heads_; ++h) {
        queries_[h * count_ + i] = {row_of(), token, (item.kv_head + h) * per_kv_head_ + head};
      }
      hi_[i] = p_.rows[row_of()].first_pos + token + 1;
      lo_[i] = p_.window > 0 ? std::max(0, hi_[i] - p_.window) : 0;
      if (++head == per_kv_head_) {
        head = 0;
        ++token;
      }
    }
  }

  void clear() {
    std::fill(m_, m_ + queries(), -std::numeric_limits<float>::infinity());
    std::fill(l_, l_ + queries(), 0.0f);
    std::fill(o_, o_ + static_cast<size_t>(queries()) * p_.v_dim, 0.0f);
  }

  int queries() const { return heads_ * count_; }

  // [tokens, heads, k_dim] to [KV heads, query blocks, k_dim, 6], scaled for a softmax in base 2.
  void pack_queries() {
    const float scale = p_.softcap > 0.0f ? p_.scale / p_.softcap : p_.scale * kLog2E;
    const int blocks = (count_ + kQueryBlock - 1) / kQueryBlock;
    for (int n = 0; n < queries(); ++n) {
      const int head = n / count_, i = n % count_;
      const TileQuery& query = queries_[n];
      const float* from =
          p_.q + (p_.rows[query.row].first_token + query.token) * p_.ldq + static_cast<int64_t>(query.head) * p_.k_dim;
      float* to = q_ + static_cast<size_t>(head * blocks + i / kQueryBlock) * kQueryBlock * p_.k_dim + i % kQueryBlock;
      for (int d = 0; d < p_.k_dim; ++d) to[d * kQueryBlock] = from[d] * scale;
    }
    packed_ = true;
  }

  void compute(int first, int last, int kv_head) {
    if (first >= last) return;
    if (!packed_) pack_queries();
    const KvLayer& cache = p_.cache;
    AttentionTile t;
    t.q = q_;
    t.heads = heads_;
    t.count = count_;
    t.lo = lo_;
    t.hi = hi_;
    t.m = m_;
    t.l = l_;
    t.o = o_;
    t.scratch = scratch_;
    t.k = keys(kv_head);
    t.v = values(kv_head);
    t.k_stride = cache.k_stride;
    t.v_stride = cache.v_stride;
    t.k_head = k_head();
    t.v_head = v_head();
    t.block_table = p_.rows[queries_[0].row].block_table;
    t.block_size = cache.block_size;
    t.k_dim = p_.k_dim;
    t.v_dim = p_.v_dim;
    t.reads = &reads_;
    t.softcap = p_.softcap > 0.0f ? p_.softcap * kLog2E : 0.0f;
    kernels_.partitions[kv_type_index(cache.dtype)](t, first, last);
  }

  float* slot(int64_t base, int count, const TileQuery& query, int index) const {
    return plan_.slot(base + (static_cast<int64_t>(query.token) * p_.heads + query.head) * count + index, p_.v_dim);
  }

  void store_states(const QueryTile& tile, int partition) {
    for (int i = 0; i < queries(); ++i) {
      const RowPartials& row = plan_.rows[queries_[i].row];
      float* to = tile.group >= 0 ? slot(row.prefix_base, row.prefix_count, queries_[i], partition)
                                  : slot(row.own_base, row.own_count, queries_[i], partition - row.first);
      to[0] = m_[i];
      to[1] = l_[i];
      std::copy_n(o_ + static_cast<size_t>(i) * p_.v_dim, p_.v_dim, to + 2);
    }
  }

  void append_partials() {
    for (int i = 0; i < queries(); ++i) {
      const RowPartials& row = plan_.rows[queries_[i].row];
      auto append = [&](int64_t base, int count) {
        for (int n = 0; n < count; ++n) {
          const float* from = slot(base, count, queries_[i], n);
          kernels_.combine(m_[i], l_[i], o_ + static_cast<size_t>(i) * p_.v_dim, from[0], from[1], from + 2, p_.v_dim);
        }
      };
      append(row.prefix_base, row.prefix_count);
      append(row.own_base, row.own_count);
    }
  }

  void finish() {
    for (int i = 0; i < queries(); ++i) {
      const TileQuery& query = queries_[i];
      float* out = p_.out + (p_.rows[query.row].first_token + query.token) * p_.ldo +
                   static_cast<int64_t>(query.head) * p_.v_dim;
      const float* sink = p_.sinks ? p_.sinks + query.head : nullptr;
      kernels_.finish(m_[i], l_[i], o_ + static_cast<size_t>(i) * p_.v_dim, sink, p_.v_dim, out);
    }
  }

  const AttentionParams& p_;
  const AttentionKernels& kernels_;
  const AttentionPlan& plan_;
  int per_kv_head_;
  float* scratch_;
  float* q_;
  float* o_;
  float* m_;
  float* l_;
  int32_t* lo_;
  int32_t* hi_;
  TileQuery* queries_;
  AttentionRead coming_[kMaxJobItems + kItemsAhead];
  int num_coming_ = 0;
  AttentionReads reads_;
  int heads_ = 0;
  int count_ = 0;  // queries of each
  bool packed_ = false;
};

}  // namespace

size_t attention_workspace(const WorkspaceLimits& limits, int threads) {
  const int64_t partitions = limits.max_positions / kAttentionPartition + 1;
  const int64_t slots = static_cast<int64_t>(limits.max_heads) * (limits.max_tokens + kCutRows * partitions);
  return attention_fixed_bytes(limits.max_tokens, limits.max_tokens, limits.max_tokens, limits.max_heads,
                               limits.max_head_dim, limits.max_head_dim, threads) +
         slots * (limits.max_head_dim + 2) * sizeof(float);
}

void attention(CpuQueue& queue, const Kernels& kernels, const AttentionParams& p) {
  ThreadPool& pool = queue.pool();
  int num_tokens = 0;
  for (int r = 0; r < p.num_rows; ++r) num_tokens += p.rows[r].n_tokens;
  if (num_tokens == 0) return;
  std::byte* workspace = queue.workspace(
      attention_fixed_bytes(p.num_rows, p.num_prefix_groups, num_tokens, p.heads, p.k_dim, p.v_dim, pool.threads()));
  const AttentionPlan plan = plan_attention(p, pool.threads(), workspace, queue.workspace_bytes());
  auto pass = [&](const QueryTile* tiles, int count) {
    const int shares = (p.kv_heads + plan.kv_heads - 1) / plan.kv_heads, items = count * shares;
    int64_t queries = 0;
    for (int i = 0; i < count; ++i) queries += tiles[i].count;
    const bool few = queries <= static_cast<int64_t>(count) * kQueryBlock;
    const int size = few ? std::clamp(items / (kJobsPerThread * pool.threads()), 1, kMaxJobItems) : 1;
    auto item = [&](int i) {
      const int kv_head = i % shares * plan.kv_heads;
      return Item{&tiles[i / shares], kv_head, std::min(plan.kv_heads, p.kv_heads - kv_head)};
    };
    const int jobs = (items + size - 1) / size;
    pool.run(jobs, [&](int job, int worker) {
      TileRunner runner(p, kernels.attention, plan, worker);
      const int first = job * size, end = std::min(items, first + size);
      const bool goes_on = pool.first_tile(jobs, worker) <= job && job + 1 < pool.first_tile(jobs, worker + 1);
      const int known = goes_on ? std::min(items, end + kItemsAhead) : end;
      for (int i = first; i < known; ++i) runner.expect(item(i));
      for (int i = first; i < end; ++i) runner.run(item(i));
    });
  };
  pass(plan.tiles, plan.first_pass);
  pass(plan.tiles + plan.first_pass, plan.second_pass);
}

}  // namespace octavo::cpu
