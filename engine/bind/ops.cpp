// The kernels behind octavo.ops: checks of every argument, then the backend's own entry points on the caller's memory.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <tuple>

#include "backend_ops.h"
#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "cache_arg.h"
#include "index_arg.h"
#include "tensor_arg.h"

namespace octavo {
namespace {

constexpr std::array kFloat{DType::kF32};

[[noreturn]] void refuse(const char* name, const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, name, message);
}

float* floats(const WriteTensor& t) { return static_cast<float*>(t.data()); }
const float* floats(const ReadTensor& t) { return static_cast<const float*>(t.data()); }

template <class Tensor>
int64_t last_extent(const Tensor& x) {
  return static_cast<int64_t>(x.shape(x.ndim() - 1));
}

int rows(const ReadTensor& x) {
  const int64_t dim = last_extent(x);
  return dim ? static_cast<int>(x.size() / dim) : 0;
}

void rms_norm(BackendOps& ops, nb::handle x, nb::handle weight, float eps, nb::handle out) {
  const TensorPlace place = ops.place();
  const ReadTensor xs = read_tensor(x, "x", kFloat, -1, place);
  const ReadTensor w = read_tensor(weight, "weight", kFloat, 1, place);
  const WriteTensor to = write_tensor(out, "out", kFloat, -1, place);
  const int64_t dim = last_extent(xs);
  check_extent("weight", "length", w.shape(0), dim);
  check_extent("out", "size", to.size(), xs.size());
  check_extent("out", "last dimension", last_extent(to), dim);
  RmsNormParams p{floats(xs), dim, floats(w), eps, rows(xs), static_cast<int>(dim), floats(to), dim};
  const nb::gil_scoped_release unlocked;
  ops.backend().rms_norm(ops.queue(), p);
}

void silu_and_mul(BackendOps& ops, nb::handle x, nb::handle out) {
  const TensorPlace place = ops.place();
  const ReadTensor xs = read_tensor(x, "x", kFloat, -1, place);
  const WriteTensor to = write_tensor(out, "out", kFloat, -1, place);
  const int64_t width = last_extent(xs);
  if (width % 2) refuse("x", cat("x must have an even last dimension [..., 2 * dim], got ", width));
  check_extent("out", "size", to.size(), xs.size() / 2);
  check_extent("out", "last dimension", last_extent(to), width / 2);
  SiluMulParams p{floats(xs), width, rows(xs), static_cast<int>(width / 2), floats(to), width / 2};
  const nb::gil_scoped_release unlocked;
  ops.backend().silu_mul(ops.queue(), p);
}

void linear(BackendOps& ops, nb::handle x, const PackedWeight& packed, nb::handle bias, nb::handle out) {
  const TensorPlace place = ops.place();
  const ReadTensor xs = read_tensor(x, "x", kFloat, -1, place);
  const WriteTensor to = write_tensor(out, "out", kFloat, -1, place);
  ops.check_weight(packed);
  check_extent("x", "last dimension", last_extent(xs), packed.k());
  const int m = rows(xs);
  check_extent("out", "size", to.size(), int64_t{m} * packed.n());
  check_extent("out", "last dimension", last_extent(to), packed.n());
  LinearParams p;
  ReadTensor added;
  if (!bias.is_none()) {
    added = read_tensor(bias, "bias", kFloat, 1, place);
    check_extent("bias", "length", added.shape(0), packed.n());
    p.bias = floats(added);
  }
  p.weight = &packed;
  p.x = floats(xs);
  p.ldx = packed.k();
  p.m = m;
  p.y = floats(to);
  p.ldy = packed.n();
  const nb::gil_scoped_release unlocked;
  ops.reserve({.max_tokens = m, .max_k = packed.k(), .max_n = packed.n()});
  ops.backend().linear(ops.queue(), p);
}

void rope(BackendOps& ops, nb::handle q, nb::handle k, nb::handle positions, nb::handle rope_table) {
  const TensorPlace place = ops.place();
  const WriteTensor qs = write_tensor(q, "q", kFloat, 3, place);
  const WriteTensor ks = write_tensor(k, "k", kFloat, 3, place);
  const ReadTensor table = read_tensor(rope_table, "rope_table", kFloat, 2, place);
  check_extent("k", "num_tokens (dimension 0)", ks.shape(0), qs.shape(0));
  check_extent("k", "head_dim (dimension 2)", ks.shape(2), qs.shape(2));
  const int64_t rotary = table.shape(1);
  if (rotary % 2 || rotary > static_cast<int64_t>(qs.shape(2))) {
    refuse("rope_table", cat("rope_table must have an even width of at most head_dim ", qs.shape(2), ", got ", rotary));
  }
  const IndexArg at(positions, "positions", 0, static_cast<int64_t>(table.shape(0)) - 1, place);
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
  const nb::gil_scoped_release unlocked;
  OpInputs& inputs = ops.inputs();
  inputs.begin(at.room() + OpInputs::room<int32_t>(slots.size()));
  p.positions = at.place(inputs);
  p.slots = inputs.place(slots);
  inputs.move();
  ops.backend().rope_write(ops.queue(), p);
}

void write_kv(BackendOps& ops, nb::handle k, nb::handle v, nb::handle k_cache, nb::handle v_cache,
              nb::handle slot_mapping) {
  const TensorPlace place = ops.place();
  const ReadTensor ks = read_tensor(k, "k", kFloat, 3, place);
  const ReadTensor vs = read_tensor(v, "v", kFloat, 3, place);
  const CacheArg cache(place, k_cache, v_cache);
  check_extent("k", "kv_heads (dimension 1)", ks.shape(1), cache.kv_heads);
  check_extent("k", "k_dim (dimension 2)", ks.shape(2), cache.k_dim);
  check_extent("v", "num_tokens (dimension 0)", vs.shape(0), ks.shape(0));
  check_extent("v", "kv_heads (dimension 1)", vs.shape(1), cache.kv_heads);
  check_extent("v", "v_dim (dimension 2)", vs.shape(2), cache.v_dim);
  const int64_t last = static_cast<int64_t>(cache.layer.num_blocks) * cache.layer.block_size - 1;
  const IndexArg slots(slot_mapping, "slot_mapping", -1, last, place);
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
  p.cache = cache.layer;
  const nb::gil_scoped_release unlocked;
  ops.inputs().begin(slots.room());
  p.slots = slots.place(ops.inputs());
  ops.inputs().move();
  ops.backend().rope_write(ops.queue(), p);
}

void copy_blocks(BackendOps& ops, nb::handle k_cache, nb::handle v_cache,
                 const std::vector<std::tuple<int64_t, int64_t, std::optional<int64_t>>>& copies) {
  const CacheArg cache(ops.place(), k_cache, v_cache);
  std::vector<SlotCopy> list;
  for (const auto& [src, dst, first_slots] : copies) {
    const int64_t slots = first_slots.value_or(cache.layer.block_size);
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
  CopyBlocksParams p;
  p.num_copies = static_cast<int>(list.size());
  p.kv_heads = cache.kv_heads;
  p.k_dim = cache.k_dim;
  p.v_dim = cache.v_dim;
  p.cache = cache.layer;
  const nb::gil_scoped_release unlocked;
  ops.inputs().begin(OpInputs::room<SlotCopy>(list.size()));
  p.copies = ops.inputs().place(list);
  ops.inputs().move();
  ops.backend().copy_blocks(ops.queue(), p);
}

}  // namespace

void bind_ops(nb::module_& m) {
  m.def("tensor_device", &device_of, nb::arg("value"),
        "Where a tensor of any kind lies: \"cpu\", \"cuda:N\" or another name; None where it does not say.");
  m.def("rms_norm", &rms_norm, nb::arg("ops"), nb::arg("x"), nb::arg("weight"), nb::arg("eps"), nb::arg("out"));
  m.def("silu_and_mul", &silu_and_mul, nb::arg("ops"), nb::arg("x"), nb::arg("out"));
  m.def("linear", &linear, nb::arg("ops"), nb::arg("x"), nb::arg("packed"), nb::arg("bias").none(), nb::arg("out"));
  m.def("rope", &rope, nb::arg("ops"), nb::arg("q"), nb::arg("k"), nb::arg("positions"), nb::arg("rope_table"));
  m.def("write_kv", &write_kv, nb::arg("ops"), nb::arg("k"), nb::arg("v"), nb::arg("k_cache"), nb::arg("v_cache"),
        nb::arg("slot_mapping"));
  m.def("copy_blocks", &copy_blocks, nb::arg("ops"), nb::arg("k_cache"), nb::arg("v_cache"), nb::arg("copies"));
}

}  // namespace octavo
