// The kernels behind octavo.ops: checks of every argument, then the backend's own entry points on the caller's memory.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "backend_ops.h"
#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "ops/attention_extent.h"
#include "tensor_arg.h"

namespace octavo {
namespace {

constexpr std::array kFloat{DType::kF32};
constexpr std::array kInt{DType::kI32};
constexpr std::array kCacheTypes{DType::kF32, DType::kF16, DType::kBF16};
constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max();

[[noreturn]] void refuse(const char* name, const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, name, message);
}

float* floats(const WriteTensor& t) { return static_cast<float*>(t.data()); }
const float* floats(const ReadTensor& t) { return static_cast<const float*>(t.data()); }

// The caller's two cache tensors as one layer of a pool.
struct Cache {
  WriteTensor k;  // [num_blocks, kv_heads, k_dim, block_size], on a GPU [num_blocks, kv_heads, block_size, k_dim]
  WriteTensor v;  // [num_blocks, kv_heads, block_size, v_dim]
  int kv_heads, k_dim, v_dim;
  KvLayer layer;

  Cache(BackendOps& ops, nb::handle k_cache, nb::handle v_cache)
      : k(write_tensor(k_cache, "k_cache", kCacheTypes, 4)),
        v(write_tensor(v_cache, "v_cache", kCacheTypes, 4)),
        kv_heads(static_cast<int>(k.shape(1))),
        v_dim(static_cast<int>(v.shape(3))) {
    const bool slots_last = ops.backend().host_memory();
    k_dim = static_cast<int>(k.shape(slots_last ? 2 : 3));
    const int block_size = static_cast<int>(k.shape(slots_last ? 3 : 2));
    if (block_size != 8 && block_size != 16 && block_size != 32) {
      refuse("k_cache",
             cat("k_cache is [num_blocks, kv_heads, ", slots_last ? "k_dim, block_size" : "block_size, k_dim",
                 "] with block_size 8, 16 or 32, got ", block_size));
    }
    if (tensor_dtype(k) != tensor_dtype(v)) refuse("v_cache", "v_cache must have the dtype of k_cache");
    check_extent("v_cache", "num_blocks (dimension 0)", v.shape(0), k.shape(0));
    check_extent("v_cache", "kv_heads (dimension 1)", v.shape(1), kv_heads);
    check_extent("v_cache", "block_size (dimension 2)", v.shape(2), block_size);
    if (kv_heads == 0 || k_dim == 0) refuse("k_cache", "k_cache has an empty dimension");
    if (v_dim == 0) refuse("v_cache", "v_cache has an empty dimension");
    const DType dtype = tensor_dtype(k);
    const size_t head = dtype_size(dtype) * kv_heads * block_size;
    layer = {static_cast<std::byte*>(k.data()),
             static_cast<std::byte*>(v.data()),
             head * k_dim,
             head * v_dim,
             dtype,
             block_size,
             static_cast<int>(k.shape(0))};
  }
};

int rows(const ReadTensor& x) {
  const size_t dim = x.shape(x.ndim() - 1);
  return dim ? static_cast<int>(x.size() / dim) : 0;
}

std::vector<AttentionRow> attention_rows(const Cache& cache, const ReadTensor& tables,
                                         const std::vector<int32_t>& lengths, const std::vector<int32_t>& queries,
                                         int window, int64_t num_tokens) {
  std::vector<AttentionRow> rows;
  int64_t token = 0;
  const int64_t width = tables.shape(1), size = cache.layer.block_size;
  for (size_t r = 0; r < lengths.size(); ++r) {
    if (queries[r] > lengths[r]) {
      refuse("query_lens", cat("query_lens[", r, "] is ", queries[r], ", above seq_lens[", r, "] ", lengths[r]));
    }
    const int32_t* table = static_cast<const int32_t*>(tables.data()) + r * width;
    const int64_t first_pos = lengths[r] - queries[r], blocks = (lengths[r] + size - 1) / size;
    if (blocks > width) {
      refuse("block_tables", cat("block_tables has ", width, " blocks per sequence, sequence ", r, " needs ", blocks));
    }
    const int64_t seen = window > 0 ? std::max<int64_t>(0, first_pos - window + 1) / size : 0;
    for (int64_t b = seen; queries[r] && b < blocks; ++b) {
      if (table[b] < 0 || table[b] >= cache.layer.num_blocks) {
        refuse("block_tables", cat("block_tables[", r, ", ", b, "] is ", table[b], ", the cache has ",
                                   cache.layer.num_blocks, " blocks"));
      }
    }
    rows.push_back({static_cast<int32_t>(token), queries[r], static_cast<int32_t>(first_pos), table});
    token += queries[r];
  }
  if (token != num_tokens) {
    refuse("query_lens", cat("query_lens add up to ", token, ", q has ", num_tokens, " tokens"));
  }
  return rows;
}

// `rows` with block tables in host memory.
std::vector<AttentionPrefixGroup> attention_groups(const std::vector<AttentionRow>& rows,
                                                   const std::vector<std::pair<std::vector<int32_t>, int32_t>>& given,
                                                   int block_size) {
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
      if (!std::equal(rows[r].block_table, rows[r].block_table + positions / block_size,
                      rows[members[0]].block_table)) {
        refuse("prefix_groups",
               cat("prefix_groups puts rows ", members[0], " and ", r, " together, their blocks differ"));
      }
    }
    groups.push_back({members.data(), static_cast<int32_t>(members.size()), partitions});
  }
  return groups;
}

void rms_norm(BackendOps& ops, nb::handle x, nb::handle weight, float eps, nb::handle out) {
  const ReadTensor xs = read_tensor(x, "x", kFloat, -1);
  const ReadTensor w = read_tensor(weight, "weight", kFloat, 1);
  const WriteTensor to = write_tensor(out, "out", kFloat, -1);
  const int64_t dim = xs.shape(xs.ndim() - 1);
  check_extent("weight", "length", w.shape(0), dim);
  check_extent("out", "size", to.size(), xs.size());
  check_extent("out", "last dimension", to.shape(to.ndim() - 1), dim);
  RmsNormParams p{floats(xs), dim, floats(w), eps, rows(xs), static_cast<int>(dim), floats(to), dim};
  const nb::gil_scoped_release unlocked;
  ops.backend().rms_norm(ops.queue(), p);
  ops.wait();
}

void silu_and_mul(BackendOps& ops, nb::handle x, nb::handle out) {
  const ReadTensor xs = read_tensor(x, "x", kFloat, -1);
  const WriteTensor to = write_tensor(out, "out", kFloat, -1);
  const int64_t width = xs.shape(xs.ndim() - 1);
  if (width % 2) refuse("x", cat("x must have an even last dimension [..., 2 * dim], got ", width));
  check_extent("out", "size", to.size(), xs.size() / 2);
  check_extent("out", "last dimension", to.shape(to.ndim() - 1), width / 2);
  SiluMulParams p{floats(xs), width, rows(xs), static_cast<int>(width / 2), floats(to), width / 2};
  const nb::gil_scoped_release unlocked;
  ops.backend().silu_mul(ops.queue(), p);
  ops.wait();
}

void rope(BackendOps& ops, nb::handle q, nb::handle k, nb::handle positions, nb::handle rope_table) {
  const WriteTensor qs = write_tensor(q, "q", kFloat, 3);
  const WriteTensor ks = write_tensor(k, "k", kFloat, 3);
  const ReadTensor table = read_tensor(rope_table, "rope_table", kFloat, 2);
  check_extent("k", "num_tokens (dimension 0)", ks.shape(0), qs.shape(0));
  check_extent("k", "head_dim (dimension 2)", ks.shape(2), qs.shape(2));
  const int64_t rotary = table.shape(1);
  if (rotary % 2 || rotary > static_cast<int64_t>(qs.shape(2))) {
    refuse("rope_table", cat("rope_table must have an even width of at most head_dim ", qs.shape(2), ", got ", rotary));
  }
  const auto at = index_tensor(positions, "positions", 0, static_cast<int64_t>(table.shape(0)) - 1);
  check_extent("positions", "length", at.size(), qs.shape(0));
  const std::vector<int32_t> slots(at.size(), -1);
  RopeWriteParams p;
  p.num_tokens = static_cast<int>(at.size());
  p.heads = static_cast<int>(qs.shape(1));
  p.kv_heads = static_cast<int>(ks.shape(1));
  p.k_dim = static_cast<int>(qs.shape(2));
  p.q = floats(qs);
  p.ldq = static_cast<int64_t>(p.heads) * p.k_dim;
  p.k = floats(ks);
  p.ldk = static_cast<int64_t>(p.kv_heads) * p.k_dim;
  p.rope = floats(table);
  p.rotary_dim = static_cast<int>(rotary);
  p.positions = ops.on_device(at);
  p.slots = ops.on_device(slots);
  const nb::gil_scoped_release unlocked;
  ops.backend().rope_write(ops.queue(), p);
  ops.wait();
}

void write_kv(BackendOps& ops, nb::handle k, nb::handle v, nb::handle k_cache, nb::handle v_cache,
              nb::handle slot_mapping) {
  const ReadTensor ks = read_tensor(k, "k", kFloat, 3);
  const ReadTensor vs = read_tensor(v, "v", kFloat, 3);
  const Cache cache(ops, k_cache, v_cache);
  check_extent("k", "kv_heads (dimension 1)", ks.shape(1), cache.kv_heads);
  check_extent("k", "k_dim (dimension 2)", ks.shape(2), cache.k_dim);
  check_extent("v", "num_tokens (dimension 0)", vs.shape(0), ks.shape(0));
  check_extent("v", "kv_heads (dimension 1)", vs.shape(1), cache.kv_heads);
  check_extent("v", "v_dim (dimension 2)", vs.shape(2), cache.v_dim);
  const int64_t last = static_cast<int64_t>(cache.layer.num_blocks) * cache.layer.block_size - 1;
  const auto slots = index_tensor(slot_mapping, "slot_mapping", -1, last);
  check_extent("slot_mapping", "length", slots.size(), ks.shape(0));
  RopeWriteParams p;
  p.num_tokens = static_cast<int>(slots.size());
  p.kv_heads = cache.kv_heads;
  p.k_dim = cache.k_dim;
  p.v_dim = cache.v_dim;
  p.k = const_cast<float*>(floats(ks));  // only rotated where there is a table
  p.ldk = static_cast<int64_t>(p.kv_heads) * p.k_dim;
  p.v = floats(vs);
  p.ldv = static_cast<int64_t>(p.kv_heads) * p.v_dim;
  p.slots = ops.on_device(slots);
  p.cache = cache.layer;
  const nb::gil_scoped_release unlocked;
  ops.backend().rope_write(ops.queue(), p);
  ops.wait();
}

void copy_blocks(BackendOps& ops, nb::handle k_cache, nb::handle v_cache,
                 const std::vector<std::tuple<int64_t, int64_t, int64_t>>& copies) {
  const Cache cache(ops, k_cache, v_cache);
  std::vector<SlotCopy> list;
  for (const auto& [src, dst, slots] : copies) {
    for (int64_t block : {src, dst}) {
      if (block < 0 || block >= cache.layer.num_blocks) {
        refuse("copies",
               cat("copies[", list.size(), "] names block ", block, ", the cache has ", cache.layer.num_blocks));
      }
    }
    if (slots < 0 || slots > cache.layer.block_size) {
      refuse("copies", cat("copies[", list.size(), "] copies ", slots, " slots, a block has ", cache.layer.block_size));
    }
    list.push_back({static_cast<int32_t>(src), static_cast<int32_t>(dst), static_cast<int32_t>(slots)});
  }
  CopyBlocksParams p{ops.on_device(list), static_cast<int>(list.size()), cache.kv_heads, cache.k_dim, cache.v_dim,
                     cache.layer};
  const nb::gil_scoped_release unlocked;
  ops.backend().copy_blocks(ops.queue(), p);
  ops.wait();
}

void paged_attention(BackendOps& ops, nb::handle q, nb::handle k_cache, nb::handle v_cache, nb::handle block_tables,
                     nb::handle seq_lens, nb::handle query_lens, float scale, int window, float softcap,
                     nb::handle sinks, const std::vector<std::pair<std::vector<int32_t>, int32_t>>& prefix_groups,
                     nb::handle out) {
  const ReadTensor qs = read_tensor(q, "q", kFloat, 3);
  const Cache cache(ops, k_cache, v_cache);
  const ReadTensor tables = read_tensor(block_tables, "block_tables", kInt, 2);
  const auto lengths = index_tensor(seq_lens, "seq_lens", 0, kMaxIndex);
  const auto queries = index_tensor(query_lens, "query_lens", 0, kMaxIndex);
  const WriteTensor to = write_tensor(out, "out", kFloat, 3);
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
  check_extent("seq_lens", "length", lengths.size(), tables.shape(0));
  check_extent("query_lens", "length", queries.size(), tables.shape(0));
  if (window < 0) refuse("window", cat("window must be at least 0, got ", window));
  if (!(softcap >= 0.0f)) refuse("softcap", cat("softcap must be at least 0, got ", softcap));
  ReadTensor sink;
  if (!sinks.is_none()) {
    sink = read_tensor(sinks, "sinks", kFloat, 1);
    check_extent("sinks", "length", sink.shape(0), p.heads);
    p.sinks = floats(sink);
  }
  const auto rows = attention_rows(cache, tables, lengths, queries, window, qs.shape(0));
  const auto groups = attention_groups(rows, prefix_groups, cache.layer.block_size);
  p.q = floats(qs);
  p.ldq = static_cast<int64_t>(p.heads) * p.k_dim;
  p.out = floats(to);
  p.ldo = static_cast<int64_t>(p.heads) * p.v_dim;
  p.rows = ops.on_device(rows);
  p.num_rows = static_cast<int>(rows.size());
  p.prefix_groups = ops.on_device(groups);
  p.num_prefix_groups = static_cast<int>(groups.size());
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
  ops.backend().attention(ops.queue(), p);
  ops.wait();
}

void check_tensor(nb::handle value, const std::string& name, const std::vector<std::string>& dtypes, int ndim) {
  std::vector<DType> wanted;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kU8}) {
    if (std::find(dtypes.begin(), dtypes.end(), dtype_name(dtype)) != dtypes.end()) wanted.push_back(dtype);
  }
  read_tensor(value, name.c_str(), wanted, ndim);
}

}  // namespace

void bind_ops(nb::module_& m) {
  m.def("check_tensor", &check_tensor, nb::arg("value"), nb::arg("name"), nb::arg("dtypes"), nb::arg("ndim") = -1,
        "Raises InvalidArgumentError naming `name` unless value is a contiguous CPU tensor of one of these dtypes.");
  m.def("rms_norm", &rms_norm, nb::arg("ops"), nb::arg("x"), nb::arg("weight"), nb::arg("eps"), nb::arg("out"));
  m.def("silu_and_mul", &silu_and_mul, nb::arg("ops"), nb::arg("x"), nb::arg("out"));
  m.def("rope", &rope, nb::arg("ops"), nb::arg("q"), nb::arg("k"), nb::arg("positions"), nb::arg("rope_table"));
  m.def("write_kv", &write_kv, nb::arg("ops"), nb::arg("k"), nb::arg("v"), nb::arg("k_cache"), nb::arg("v_cache"),
        nb::arg("slot_mapping"));
  m.def("copy_blocks", &copy_blocks, nb::arg("ops"), nb::arg("k_cache"), nb::arg("v_cache"), nb::arg("copies"));
  m.def("paged_attention", &paged_attention, nb::arg("ops"), nb::arg("q"), nb::arg("k_cache"), nb::arg("v_cache"),
        nb::arg("block_tables"), nb::arg("seq_lens"), nb::arg("query_lens"), nb::arg("scale"), nb::arg("window"),
        nb::arg("softcap"), nb::arg("sinks").none(), nb::arg("prefix_groups"), nb::arg("out"));
}

}  // namespace octavo
