#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "bind.h"
#include "kv_dtype.h"
#include "ops/attention_extent.h"
#include "runtime/open_backend.h"

namespace octavo {

namespace {

using TimedRow = std::tuple<int, int>;  // tokens, context (own tokens included)

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one attention over rows whose blocks lie scattered in the pool, the mean of `repeats` in a row.
double time_attention(const std::string& device, const std::string& dtype, int heads, int kv_heads, int head_dim,
                      int block_size, const std::vector<TimedRow>& timed, int repeats) {
  const auto backend = open_backend({device, ""});
  backend->use_device();
  const auto queue = backend->make_queue(0);
  int tokens = 0, blocks = 0, longest = 0;
  for (const auto& [n, context] : timed) {
    tokens += n;
    blocks += (context + block_size - 1) / block_size;
    longest = std::max(longest, context);
  }
  WorkspaceLimits limits;
  limits.max_tokens = limits.max_rows = tokens;
  limits.max_heads = heads;
  limits.max_head_dim = head_dim;
  limits.max_k = limits.max_n = heads * head_dim;
  limits.max_positions = longest;
  queue->reserve(limits);
  KvGroup group;
  group.layers = {0};
  group.kv_heads = kv_heads;
  group.k_dim = group.v_dim = head_dim;
  group.dtype = kv_dtype_from_name(dtype);
  const auto pool = backend->make_kv_pool(group, block_size, blocks);

  std::vector<int32_t> table(static_cast<size_t>(blocks));
  for (int i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(int64_t{i} * 7919 % blocks);
  const size_t width = static_cast<size_t>(heads) * static_cast<size_t>(head_dim);
  const auto q = backend->allocate(static_cast<size_t>(tokens) * width * sizeof(float));
  const auto out = backend->allocate(q->size());
  const auto device_table = backend->allocate(table.size() * sizeof(int32_t));
  backend->upload(*queue, device_table->data(), table.data(), device_table->size());
  std::vector<AttentionRow> rows;
  int first_token = 0, first_block = 0;
  for (const auto& [n, context] : timed) {
    rows.push_back({first_token, n, context - n, device_table->as<int32_t>() + first_block});
    first_token += n;
    first_block += (context + block_size - 1) / block_size;
  }
  const auto device_rows = backend->allocate(rows.size() * sizeof(AttentionRow));
  backend->upload(*queue, device_rows->data(), rows.data(), device_rows->size());
  AttentionParams p;
  p.q = q->as<float>();
  p.out = out->as<float>();
  p.ldq = p.ldo = static_cast<int64_t>(width);
  p.rows = device_rows->as<AttentionRow>();
  p.num_rows = static_cast<int>(rows.size());
  p.extent = attention_extent(rows, {});
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.k_dim = p.v_dim = head_dim;
  p.scale = 0.1f;
  p.cache = pool->layer(0);
  backend->attention(*queue, p);
  queue->wait();
  const double begin = seconds_now();
  for (int i = 0; i < repeats; ++i) backend->attention(*queue, p);
  queue->wait();
  return (seconds_now() - begin) / repeats;
}

}  // namespace

void bind_device_timing(nb::module_& m) {
  m.def("time_attention", &time_attention, nb::kw_only(), nb::arg("device"), nb::arg("kv_dtype"), nb::arg("heads"),
        nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("block_size"), nb::arg("rows"), nb::arg("repeats"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Seconds of one attention op. rows: (tokens, context), own tokens included in the context.");
}

}  // namespace octavo
