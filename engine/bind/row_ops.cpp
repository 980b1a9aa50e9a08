// Ops of the decoder on rows that octavo.ops does not offer, for tests of backends.
#include "row_ops.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "backend_ops.h"
#include "base/errors.h"
#include "base/format.h"
#include "bind.h"

namespace octavo {

Prologue parse_prologue(const std::string& name) {
  if (name == "none") return Prologue::kNone;
  if (name == "rms_norm") return Prologue::kRmsNorm;
  if (name == "silu_mul") return Prologue::kSiluMul;
  if (name == "gelu_tanh_mul") return Prologue::kGeluTanhMul;
  if (name == "clamped_silu_mul") return Prologue::kClampedSiluMul;
  throw Error(ErrorCode::kInvalidArgument, "prologue",
              cat("prologue must be none, rms_norm, silu_mul, gelu_tanh_mul or clamped_silu_mul, got \"", name, "\""));
}

namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu, nb::c_contig>;
using MutableMatrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu, nb::c_contig>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using IdMatrix = nb::ndarray<int32_t, nb::ndim<2>, nb::device::cpu, nb::c_contig>;

void check_shape(const char* name, size_t rows, size_t columns, size_t wanted_rows, size_t wanted_columns) {
  if (rows == wanted_rows && columns == wanted_columns) return;
  throw Error(ErrorCode::kInvalidArgument, name,
              cat(name, " is [", rows, ", ", columns, "], [", wanted_rows, ", ", wanted_columns, "] is needed"));
}

void residual_add(BackendOps& ops, const MutableMatrix& x, const MutableMatrix& y,
                  const std::optional<Vector>& norm_weight, float eps, float scale) {
  check_shape("y", y.shape(0), y.shape(1), x.shape(0), x.shape(1));
  if (norm_weight) check_shape("norm_weight", 1, norm_weight->shape(0), 1, x.shape(1));
  ResidualAddParams p;
  p.x = x.data();
  p.y = y.data();
  p.ldx = p.ldy = p.dim = static_cast<int>(x.shape(1));
  p.norm_weight = norm_weight ? norm_weight->data() : nullptr;
  p.eps = eps;
  p.scale = scale;
  p.rows = static_cast<int>(x.shape(0));
  const nb::gil_scoped_release unlocked;
  ops.backend().residual_add(ops.queue(), p);
  ops.wait();
}

void scale_logits(BackendOps& ops, const MutableMatrix& x, float scale, float softcap) {
  const ScaleLogitsParams p{x.data(), static_cast<int>(x.shape(0)), static_cast<int>(x.shape(1)), scale, softcap};
  const nb::gil_scoped_release unlocked;
  ops.backend().scale_logits(ops.queue(), p);
  ops.wait();
}

void gather_rows(BackendOps& ops, const Matrix& x, const std::vector<int32_t>& rows, const MutableMatrix& out) {
  check_shape("out", out.shape(0), out.shape(1), rows.size(), x.shape(1));
  for (int32_t row : rows) {
    if (row < 0 || row >= static_cast<int64_t>(x.shape(0))) {
      throw Error(ErrorCode::kInvalidArgument, "rows", cat("row ", row, " of ", x.shape(0)));
    }
  }
  GatherRowsParams p;
  p.x = x.data();
  p.ldx = p.ldo = p.dim = static_cast<int>(x.shape(1));
  ops.inputs().begin(OpInputs::room<int32_t>(rows.size()));
  p.rows = ops.inputs().place(rows);
  ops.inputs().move();
  p.num_rows = static_cast<int>(rows.size());
  p.out = out.data();
  const nb::gil_scoped_release unlocked;
  ops.backend().gather_rows(ops.queue(), p);
  ops.wait();
}

// What run_mixture() writes.
struct Mixture {
  IdMatrix ids;           // [num_tokens, chosen]
  MutableMatrix weights;  // [num_tokens, columns]
  MutableMatrix out;      // [num_tokens, dim]
};

std::vector<ExpertMatrices> expert_matrices(const std::vector<std::tuple<PackedWeight*, PackedWeight*>>& experts,
                                            const std::optional<Matrix>& gate_up_bias,
                                            const std::optional<Matrix>& down_bias) {
  if (experts.empty()) throw Error(ErrorCode::kInvalidArgument, "experts", "there are no experts");
  const auto& [first_up, first_down] = experts[0];
  if (gate_up_bias) {
    check_shape("gate_up_bias", gate_up_bias->shape(0), gate_up_bias->shape(1), experts.size(), first_up->n());
  }
  if (down_bias) check_shape("down_bias", down_bias->shape(0), down_bias->shape(1), experts.size(), first_down->n());
  std::vector<ExpertMatrices> matrices;
  for (const auto& [gate_up, down] : experts) {
    check_shape("gate_up", gate_up->n(), gate_up->k(), 2 * static_cast<size_t>(first_down->k()), first_down->n());
    check_shape("down", down->n(), down->k(), first_down->n(), first_down->k());
    const size_t e = matrices.size();
    matrices.push_back({gate_up, gate_up_bias ? gate_up_bias->data() + e * gate_up->n() : nullptr, down,
                        down_bias ? down_bias->data() + e * down->n() : nullptr});
  }
  return matrices;
}

// Routes tokens, runs their experts and adds up what these give, and the shared expert's output.
void run_mixture(BackendOps& ops, const std::vector<std::tuple<PackedWeight*, PackedWeight*>>& experts,
                 const Matrix& logits, const Matrix& x, bool normalized, const std::string& gate,
                 const std::optional<Matrix>& gate_up_bias, const std::optional<Matrix>& down_bias,
                 const std::optional<Matrix>& shared, const std::optional<Vector>& shared_gate, const Mixture& to) {
  const auto num_tokens = static_cast<int>(x.shape(0)), dim = static_cast<int>(x.shape(1));
  const auto num_experts = static_cast<int>(experts.size()), chosen = static_cast<int>(to.ids.shape(1));
  const int columns = chosen + (shared ? 1 : 0), places = num_tokens * chosen;
  check_shape("logits", logits.shape(0), logits.shape(1), num_tokens, num_experts);
  check_shape("ids", to.ids.shape(0), chosen, num_tokens, std::clamp(chosen, 1, num_experts));
  check_shape("weights", to.weights.shape(0), to.weights.shape(1), num_tokens, columns);
  check_shape("out", to.out.shape(0), to.out.shape(1), num_tokens, dim);
  if (shared) check_shape("shared", shared->shape(0), shared->shape(1), num_tokens, dim);
  if (shared_gate) check_shape("shared_gate", 1, shared_gate->shape(0), 1, num_tokens);
  std::vector<ExpertMatrices> matrices = expert_matrices(experts, gate_up_bias, down_bias);
  check_shape("x", num_tokens, dim, num_tokens, matrices[0].down->n());
  const int width = matrices[0].down->k();
  Backend& backend = ops.backend();
  Queue& queue = ops.queue();
  const auto scratch = [&](size_t count) { return backend.allocate(count * sizeof(float)); };
  const auto offsets = scratch(num_experts + 1), tokens = scratch(places), rows = scratch(size_t(num_tokens) * columns),
             gathered = scratch(size_t(num_tokens) * dim), gate_up = scratch(size_t(places) * 2 * width),
             outputs = scratch((size_t(places) + num_tokens) * dim);

  RouteExpertsParams route;
  route.logits = logits.data();
  route.num_tokens = num_tokens;
  route.experts = num_experts;
  route.chosen = chosen;
  route.normalized = normalized;
  route.shared_gate = shared_gate ? shared_gate->data() : nullptr;
  route.columns = columns;
  route.ids = to.ids.data();
  route.weights = to.weights.data();
  const GroupExpertsParams group{
      to.ids.data(),         num_tokens,         num_experts, chosen, columns, offsets->as<int32_t>(),
      tokens->as<int32_t>(), rows->as<int32_t>()};
  RunExpertsParams run;
  run.x = x.data();
  run.num_tokens = num_tokens;
  run.dim = dim;
  run.chosen = chosen;
  run.gate = parse_prologue(gate);
  run.offsets = group.offsets;
  run.tokens = group.tokens;
  run.gathered = gathered->as<float>();
  run.gate_up = gate_up->as<float>();
  run.out = outputs->as<float>();
  CombineExpertsParams combine{run.out, group.rows, route.weights, num_tokens, columns, dim, to.out.data()};

  const nb::gil_scoped_release unlocked;
  const auto table = backend.make_expert_table(queue, std::move(matrices));
  run.table = table.get();
  ops.reserve({.max_tokens = num_tokens,
               .max_k = std::max(dim, width),
               .max_n = std::max({dim, 2 * width, num_experts}),
               .max_expert_rows = places});
  if (shared) {
    backend.upload(queue, run.out + size_t(places) * dim, shared->data(), shared->size() * sizeof(float));
  }
  backend.route_experts(queue, route);
  backend.group_experts(queue, group);
  backend.run_experts(queue, run);
  backend.combine_experts(queue, combine);
  ops.wait();
}

}  // namespace

void bind_row_ops(nb::module_& m) {
  m.def("residual_add", &residual_add, nb::arg("ops"), nb::arg("x").noconvert(), nb::arg("y").noconvert(),
        nb::arg("norm_weight").noconvert() = nb::none(), nb::arg("eps") = 1e-5f, nb::arg("scale") = 1.0f,
        "x += scale * y, or scale * rms_norm(y); y may be overwritten.");
  m.def("scale_logits", &scale_logits, nb::arg("ops"), nb::arg("x").noconvert(), nb::arg("scale") = 1.0f,
        nb::arg("softcap") = 0.0f, "x = softcap * tanh(scale * x / softcap) in place; softcap 0: scale * x.");
  m.def("gather_rows", &gather_rows, nb::arg("ops"), nb::arg("x").noconvert(), nb::arg("rows"),
        nb::arg("out").noconvert(), "out[i] = x[rows[i]]");
  m.def(
      "run_mixture",
      [](BackendOps& ops, const std::vector<std::tuple<PackedWeight*, PackedWeight*>>& experts, const Matrix& logits,
         const Matrix& x, const IdMatrix& ids, const MutableMatrix& weights, const MutableMatrix& out, bool normalized,
         const std::string& gate, const std::optional<Matrix>& gate_up_bias, const std::optional<Matrix>& down_bias,
         const std::optional<Matrix>& shared, const std::optional<Vector>& shared_gate) {
        run_mixture(ops, experts, logits, x, normalized, gate, gate_up_bias, down_bias, shared, shared_gate,
                    {ids, weights, out});
      },
      nb::arg("ops"), nb::arg("experts"), nb::arg("logits").noconvert(), nb::arg("x").noconvert(),
      nb::arg("ids").noconvert(), nb::arg("weights").noconvert(), nb::arg("out").noconvert(),
      nb::arg("normalized") = true, nb::arg("gate") = "silu_mul", nb::arg("gate_up_bias").noconvert() = nb::none(),
      nb::arg("down_bias").noconvert() = nb::none(), nb::arg("shared").noconvert() = nb::none(),
      nb::arg("shared_gate").noconvert() = nb::none(),
      "A mixture of experts (gate_up, down) on x [num_tokens, dim]: fills ids [num_tokens, chosen], weights and out.");
}

}  // namespace octavo
