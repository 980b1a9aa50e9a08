#include "backend/cpu/attention_plan.h"

#include <algorithm>

#include "backend/cpu/attention_kernels.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cpu {
namespace {

constexpr int kMinTileQueries = 12;
constexpr int kJobsPerThread = 4;
constexpr int kMinPieceWork = 4;  // query blocks times partitions: below this a job costs less than claiming it

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// More tiles than these are never made: every query is in one finishing tile and in at most two storing ones, and
// cutting tiles into pieces adds about as many as there are jobs to make.
int tile_bound(int num_rows, int num_groups, int num_tokens, int heads, int threads) {
  return 3 * (ceil_div(static_cast<int64_t>(num_tokens) * heads, kMinTileQueries) + num_rows + num_groups) +
         2 * kJobsPerThread * threads;
}

class Planner {
 public:
  Planner(const AttentionParams& p, int threads, AttentionPlan& plan)
      : p_(p), plan_(plan), threads_(threads), per_kv_head_(p.heads / p.kv_heads) {}

  void run() {
    for (int r = 0; r < p_.num_rows; ++r) plan_.rows[r] = own_partitions(p_.rows[r]);
    for (int g = 0; g < p_.num_prefix_groups; ++g) {
      if (!shared(g)) continue;
      for (int i = 0; i < p_.prefix_groups[g].num_rows; ++i) {
        RowPartials& row = plan_.rows[p_.prefix_groups[g].rows[i]];
        row.first = std::max(row.first, p_.prefix_groups[g].partitions);
        row.last = std::max(row.last, row.first);
        row.prefix_count = 1;
      }
    }
    choose_tile_size();
    choose_kv_heads();
    for (int g = 0; g < p_.num_prefix_groups; ++g) {
      if (shared(g)) add_group(g);
    }
    for (int r = 0; r < p_.num_rows; ++r) cut_row(r);
    for (int r = 0; r < p_.num_rows; ++r) {
      if (!waits(r)) add_row_tiles(r, plan_.rows[r].first, plan_.rows[r].last, true);
    }
    plan_.first_pass = tiles_;
    for (int r = 0; r < p_.num_rows; ++r) {
      if (waits(r)) add_row_tiles(r, plan_.rows[r].first, plan_.rows[r].last, true);
    }
    plan_.second_pass = tiles_ - plan_.first_pass;
  }

 private:
  bool shared(int g) const { return p_.prefix_groups[g].num_rows > 0 && p_.prefix_groups[g].partitions > 0; }
  bool waits(int r) const { return plan_.rows[r].prefix_count > 0 || plan_.rows[r].own_count > 0; }

  RowPartials own_partitions(const AttentionRow& row) const {
    RowPartials partials;
    const int first = p_.window > 0 ? std::max(0, row.first_pos - p_.window + 1) : 0;
    partials.first = first / kAttentionPartition;
    partials.last = row.n_tokens > 0 ? (row.first_pos + row.n_tokens - 1) / kAttentionPartition + 1 : partials.first;
    return partials;
  }

  int64_t group_tokens(int g) const {
    int64_t tokens = 0;
    for (int i = 0; i < p_.prefix_groups[g].num_rows; ++i) tokens += p_.rows[p_.prefix_groups[g].rows[i]].n_tokens;
    return tokens;
  }

  // Calls use(tokens, partitions) for what each row and each group reads.
  template <class Use>
  void each_span(Use use) const {
    for (int r = 0; r < p_.num_rows; ++r) use(p_.rows[r].n_tokens, plan_.rows[r].last - plan_.rows[r].first);
    for (int g = 0; g < p_.num_prefix_groups; ++g) {
      if (shared(g)) use(group_tokens(g), p_.prefix_groups[g].partitions);
    }
  }

  // Large tiles read the cache less often, small ones keep every thread busy.
  void choose_tile_size() {
    for (tile_queries_ = kMaxTileQueries;; tile_queries_ /= 2) {
      int64_t tiles = 0;
      work_ = 0;
      auto add = [&](int64_t tokens, int partitions) {
        const int64_t queries = tokens * per_kv_head_;
        tiles += ceil_div(queries, tile_queries_);
        work_ += static_cast<int64_t>(ceil_div(queries, kQueryBlock)) * partitions * p_.kv_heads;
      };
      each_span(add);
      if (tile_queries_ / 2 < kMinTileQueries || tiles * p_.kv_heads >= kJobsPerThread * threads_) break;
    }
  }

  // The blocks of neighbouring heads lie side by side: of what the hardware fetches ahead of one of them, much is the
  // next one's. So they are worked on together, if there are partitions enough for all threads.
  void choose_kv_heads() {
    int64_t partitions = 0, most = 0;
    each_span([&](int64_t tokens, int count) {
      const int64_t queries = tokens * per_kv_head_;
      partitions += static_cast<int64_t>(ceil_div(queries, tile_queries_)) * count;
      most = std::max(most, std::min<int64_t>(queries, tile_queries_));
    });
    if (partitions < kJobsPerThread * threads_) return;
    const int blocks = std::max(1, ceil_div(most, kQueryBlock));
    plan_.kv_heads = std::clamp(kMaxTileQueries / kQueryBlock / blocks, 1, p_.kv_heads);
  }

  // Partitions that one job should take of a tile with `queries` queries, so that there is work for all threads.
  int piece_partitions(int64_t queries, int partitions) const {
    if (threads_ == 1) return partitions;
    const int64_t piece = std::max<int64_t>(kMinPieceWork, work_ / (kJobsPerThread * threads_));
    const int blocks = ceil_div(std::min<int64_t>(queries, tile_queries_), kQueryBlock);
    return std::clamp(ceil_div(piece, std::max(blocks, 1) * plan_.kv_heads), 1, std::max(partitions, 1));
  }

  // Slots for `count` states of every query; false when they do not fit.
  bool take_slots(int64_t tokens, int count, int64_t& base) {
    const int64_t wanted = tokens * p_.heads * count;
    if (plan_.slots_used + wanted > plan_.num_slots) return false;
    base = plan_.slots_used;
    plan_.slots_used += wanted;
    return true;
  }

  void add_group(int g) {
    const AttentionPrefixGroup& group = p_.prefix_groups[g];
    const int64_t tokens = group_tokens(g);
    int piece = piece_partitions(tokens * per_kv_head_, group.partitions);
    int count = piece < group.partitions ? group.partitions : 1;
    int64_t base = 0;
    if (!take_slots(tokens, count, base)) {
      piece = group.partitions;
      count = 1;
      if (!take_slots(tokens, count, base)) {
        throw Error(ErrorCode::kInternal, "workspace",
                    cat("a prefix group of ", tokens, " tokens exceeds the reserved workspace"));
      }
    }
    for (int i = 0; i < group.num_rows; ++i) {
      RowPartials& row = plan_.rows[group.rows[i]];
      row.prefix_count = count;
      row.prefix_base = base;
      base += static_cast<int64_t>(p_.rows[group.rows[i]].n_tokens) * p_.heads * count;
    }
    for (int first = 0; first < group.partitions; first += piece) {
      add_tiles(g, 0, group.num_rows, first, std::min(first + piece, group.partitions), false);
    }
  }

  // A long row among few is cut into pieces of its partitions.
  void cut_row(int r) {
    RowPartials& row = plan_.rows[r];
    const int partitions = row.last - row.first;
    const int piece = piece_partitions(static_cast<int64_t>(p_.rows[r].n_tokens) * per_kv_head_, partitions);
    if (piece >= partitions || !take_slots(p_.rows[r].n_tokens, partitions, row.own_base)) return;
    row.own_count = partitions;
    for (int first = row.first; first < row.last; first += piece) {
      add_row_tiles(r, first, std::min(first + piece, row.last), false);
    }
  }

  void add_row_tiles(int r, int first, int last, bool finishes) { add_tiles(-1, r, r + 1, first, last, finishes); }

  // Tiles over the queries of members [begin, end) of a group, or of all rows.
  void add_tiles(int group, int begin, int end, int first, int last, bool finishes) {
    QueryTile tile{group, 0, 0, 0, 0, first, last, finishes};
    for (int m = begin; m < end; ++m) {
      const int n_tokens = p_.rows[group < 0 ? m : p_.prefix_groups[group].rows[m]].n_tokens;
      for (int64_t q = 0, queries = static_cast<int64_t>(n_tokens) * per_kv_head_; q < queries;) {
        if (tile.count == 0) {
          tile.member = m;
          tile.token = static_cast<int>(q / per_kv_head_);
          tile.head = static_cast<int>(q % per_kv_head_);
        }
        const int take = static_cast<int>(std::min<int64_t>(queries - q, tile_queries_ - tile.count));
        tile.count += take;
        q += take;
        if (tile.count == tile_queries_) add(tile);
      }
    }
    if (tile.count) add(tile);
  }

  void add(QueryTile& tile) {
    if (tiles_ == plan_.max_tiles) {
      throw Error(ErrorCode::kInternal, "workspace", cat("attention needs more than ", plan_.max_tiles, " tiles"));
    }
    plan_.tiles[tiles_++] = tile;
    tile.count = 0;
  }

  const AttentionParams& p_;
  AttentionPlan& plan_;
  int threads_;
  int per_kv_head_;
  int tile_queries_ = kMaxTileQueries;
  int64_t work_ = 0;  // query blocks times partitions, all KV heads
  int tiles_ = 0;
};

}  // namespace

size_t attention_worker_bytes(int k_dim, int v_dim) {
  const size_t floats = static_cast<size_t>(kMaxTileQueries) * (k_dim + v_dim + 2) + attention_scratch(k_dim, v_dim);
  return aligned(floats * sizeof(float)) + aligned(kMaxTileQueries * (2 * sizeof(int32_t) + sizeof(TileQuery)));
}

size_t attention_fixed_bytes(int num_rows, int num_groups, int num_tokens, int heads, int k_dim, int v_dim,
                             int threads) {
  return aligned(sizeof(RowPartials) * num_rows) +
         aligned(sizeof(QueryTile) * tile_bound(num_rows, num_groups, num_tokens, heads, threads)) +
         threads * attention_worker_bytes(k_dim, v_dim);
}

AttentionPlan plan_attention(const AttentionParams& p, int threads, std::byte* workspace, size_t workspace_bytes) {
  int num_tokens = 0;
  for (int r = 0; r < p.num_rows; ++r) num_tokens += p.rows[r].n_tokens;
  AttentionPlan plan;
  std::byte* next = workspace;
  plan.rows = reinterpret_cast<RowPartials*>(next);
  next += aligned(sizeof(RowPartials) * p.num_rows);
  plan.tiles = reinterpret_cast<QueryTile*>(next);
  plan.max_tiles = tile_bound(p.num_rows, p.num_prefix_groups, num_tokens, p.heads, threads);
  next += aligned(sizeof(QueryTile) * plan.max_tiles);
  plan.workers = next;
  plan.worker_bytes = attention_worker_bytes(p.k_dim, p.v_dim);
  next += threads * plan.worker_bytes;
  plan.slots = reinterpret_cast<float*>(next);
  plan.num_slots = (workspace_bytes - (next - workspace)) / (sizeof(float) * (p.v_dim + 2));
  Planner(p, threads, plan).run();
  return plan;
}

}  // namespace octavo::cpu
