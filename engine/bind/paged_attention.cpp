// paged_attention of octavo.ops: checks of every argument, then the backend's own entry point on the caller's memory.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <limits>

#include "backend_ops.h"
#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "cache_arg.h"
#include "ops/attention_extent.h"
#include "tensor_arg.h"

namespace octavo {
namespace {

constexpr std::array kFloat{DType::kF32};
constexpr std::array kInt{DType::kI32};
constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max();

using PrefixGroups = std::vector<std::pair<std::vector<int32_t>, int32_t>>;  // members, partitions

[[noreturn]] void refuse(const char* name, const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, name, message);
}

// [num_seqs, width] block ids, in host memory or on the GPU, where they are taken at their word.
struct BlockTables {
  bool on_gpu;
  ReadTensor tensor;
  int64_t width;

  BlockTables(nb::handle value, const TensorPlace& place)
      : on_gpu(place.kind == TensorPlace::kGpu && device_of(value) == place.name()),
        tensor(read_tensor(value, "block_tables", kInt, 2, on_gpu ? place : TensorPlace{})),
        width(static_cast<int64_t>(tensor.shape(1))) {}

  std::span<const int32_t> ids() const { return {static_cast<const int32_t*>(tensor.data()), tensor.size()}; }
};

void check_blocks(const int32_t* table, size_t row, int64_t begin, int64_t end, int num_blocks) {
  for (int64_t b = begin; b < end; ++b) {
    if (table[b] < 0 || table[b] >= num_blocks) {
      refuse("block_tables",
             cat("block_tables[", row, ", ", b, "] is ", table[b], ", the cache has ", num_blocks, " blocks"));
    }
  }
}

std::vector<AttentionRow> attention_rows(const CacheArg& cache, const BlockTables& tables,
                                         const std::vector<int32_t>& lengths, const std::vector<int32_t>& queries,
                                         int window, int64_t num_tokens) {
  std::vector<AttentionRow> rows;
  int64_t token = 0;
  const int64_t size = cache.layer.block_size;
  for (size_t r = 0; r < lengths.size(); ++r) {
    if (queries[r] > lengths[r]) {
      refuse("query_lens", cat("query_lens[", r, "] is ", queries[r], ", above seq_lens[", r, "] ", lengths[r]));
    }
    const int32_t* table = tables.ids().data() + r * tables.width;
    const int64_t first_pos = lengths[r] - queries[r], blocks = (lengths[r] + size - 1) / size;
    if (blocks > tables.width) {
      refuse("block_tables",
             cat("block_tables has ", tables.width, " blocks per sequence, sequence ", r, " needs ", blocks));
    }
    const int64_t seen = window > 0 ? std::max<int64_t>(0, first_pos - window + 1) / size : 0;
    if (queries[r] && !tables.on_gpu) check_blocks(table, r, seen, blocks, cache.layer.num_blocks);
    rows.push_back({static_cast<int32_t>(token), queries[r], static_cast<int32_t>(first_pos), table});
    token += queries[r];
  }
  if (token != num_tokens) {
    refuse("query_lens", cat("query_lens add up to ", token, ", q has ", num_tokens, " tokens"));
  }
  return rows;
}

std::vector<AttentionPrefixGroup> attention_groups(const std::vector<AttentionRow>& rows, const PrefixGroups& given,
                                                   int block_size, bool readable_tables) {
  std::vector<AttentionPrefixGroup> groups;
  std::vector<bool> taken(rows.size());
  for (const auto& [members, partitions] : given) {
    if (members.empty()) continue;
    const int64_t positions = static_cast<int64_t>(partitions) * kAttentionPartition;
    for (int32_t r : members) {
      if (r < 0 || r >= static_cast<int64_t>(rows.size()) || taken[r]) {
        refuse("prefix_groups", cat("prefix_groups names row ", r, ", which is not there or in two groups"));
      }
      taken[r] = true;
      if (partitions < 0 || positions > rows[r].first_pos + 1) {
        refuse("prefix_groups", cat("prefix_groups gives row ", r, " ", partitions, " partitions of ",
                                    kAttentionPartition, " positions, its first query sees ", rows[r].first_pos + 1));
      }
      if (readable_tables && !std::equal(rows[r].block_table, rows[r].block_table + positions / block_size,
                                         rows[members[0]].block_table)) {
        refuse("prefix_groups",
               cat("prefix_groups puts rows ", members[0], " and ", r, " together, their blocks differ"));
      }
    }
    groups.push_back({members.data(), static_cast<int32_t>(members.size()), partitions});
  }
  return groups;
}

// Moves rows, groups and what they point to to where the op reads them.
void place_rows(OpInputs& inputs, const BlockTables& tables, std::vector<AttentionRow>& rows,
                std::vector<AttentionPrefixGroup>& groups, AttentionParams& p) {
  size_t bytes = OpInputs::room<AttentionRow>(rows.size()) + OpInputs::room<AttentionPrefixGroup>(groups.size()) +
                 (tables.on_gpu ? 0 : OpInputs::room<int32_t>(tables.ids().size()));
  for (const AttentionPrefixGroup& group : groups) bytes += OpInputs::room<int32_t>(group.num_rows);
  inputs.begin(bytes);
  const int32_t* from = tables.ids().data();
  const int32_t* to = tables.on_gpu ? from : inputs.place(tables.ids());
  for (AttentionRow& row : rows) row.block_table = to + (row.block_table - from);
  for (AttentionPrefixGroup& group : groups) {
    group.rows = inputs.place(std::span(group.rows, static_cast<size_t>(group.num_rows)));
  }
  p.rows = inputs.place(rows);
  p.num_rows = static_cast<int>(rows.size());
  p.prefix_groups = inputs.place(groups);
  p.num_prefix_groups = static_cast<int>(groups.size());
  inputs.move();
}

void paged_attention(BackendOps& ops, nb::handle q, nb::handle k_cache, nb::handle v_cache, nb::handle block_tables,
                     nb::handle seq_lens, nb::handle query_lens, float scale, int window, float softcap,
                     nb::handle sinks, const PrefixGroups& prefix_groups, nb::handle out) {
  const TensorPlace place = ops.place();
  const ReadTensor qs = read_tensor(q, "q", kFloat, 3, place);
  const CacheArg cache(place, k_cache, v_cache);
  const BlockTables tables(block_tables, place);
  const auto lengths = index_tensor(seq_lens, "seq_lens", 0, kMaxIndex);
  const auto queries = index_tensor(query_lens, "query_lens", 0, kMaxIndex);
  const WriteTensor to = write_tensor(out, "out", kFloat, 3, place);
  AttentionParams p;
  p.heads = static_cast<int>(qs.shape(1));
  p.kv_heads = cache.kv_heads;
  p.k_dim = cache.k_dim;
  p.v_dim = cache.v_dim;
  if (p.heads == 0 || p.heads % p.kv_heads) {
    refuse("q", cat("q must have a multiple of the cache's ", p.kv_heads, " kv_heads as heads, got ", p.heads));
  }
  check_extent("q", "k_dim (dimension 2)", qs.shape(2), p.k_dim);
  check_extent("out", "num_tokens (dimension 0)", to.shape(0), qs.shape(0));
  check_extent("out", "heads (dimension 1)", to.shape(1), p.heads);
  check_extent("out", "v_dim (dimension 2)", to.shape(2), p.v_dim);
  check_extent("seq_lens", "length", lengths.size(), tables.tensor.shape(0));
  check_extent("query_lens", "length", queries.size(), tables.tensor.shape(0));
  if (window < 0) refuse("window", cat("window must be at least 0, got ", window));
  if (!(softcap >= 0.0f)) refuse("softcap", cat("softcap must be at least 0, got ", softcap));
  ReadTensor sink;
  if (!sinks.is_none()) {
    sink = read_tensor(sinks, "sinks", kFloat, 1, place);
    check_extent("sinks", "length", sink.shape(0), p.heads);
    p.sinks = static_cast<const float*>(sink.data());
  }
  auto rows = attention_rows(cache, tables, lengths, queries, window, qs.shape(0));
  auto groups = attention_groups(rows, prefix_groups, cache.layer.block_size, !tables.on_gpu);
  p.q = static_cast<const float*>(qs.data());
  p.ldq = static_cast<int64_t>(p.heads) * p.k_dim;
  p.out = static_cast<float*>(to.data());
  p.ldo = static_cast<int64_t>(p.heads) * p.v_dim;
  p.extent = attention_extent(rows, groups);
  p.scale = scale;
  p.window = window;
  p.softcap = softcap;
  p.cache = cache.layer;
  const int longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const int tokens = static_cast<int>(std::max(qs.shape(0), rows.size()));
  const nb::gil_scoped_release unlocked;
  ops.reserve({.max_tokens = tokens,
               .max_heads = p.heads,
               .max_head_dim = std::max(p.k_dim, p.v_dim),
               .max_positions = longest});
  place_rows(ops.inputs(), tables, rows, groups, p);
  ops.backend().attention(ops.queue(), p);
}

}  // namespace

void bind_paged_attention(nb::module_& m) {
  m.def("paged_attention", &paged_attention, nb::arg("ops"), nb::arg("q"), nb::arg("k_cache"), nb::arg("v_cache"),
        nb::arg("block_tables"), nb::arg("seq_lens"), nb::arg("query_lens"), nb::arg("scale"), nb::arg("window"),
        nb::arg("softcap"), nb::arg("sinks").none(), nb::arg("prefix_groups"), nb::arg("out"));
}

}  // namespace octavo
