#include "model/moe_block.h"

#include <algorithm>

namespace octavo {

namespace {

static_assert(sizeof(float) == sizeof(int32_t));

// f32 or int32
std::unique_ptr<DeviceMemory> words(Backend& backend, int64_t rows, int64_t width) {
  return backend.allocate(static_cast<size_t>(rows * width) * sizeof(float));
}

// One expert runs after the other on the CPU; on a device all do at once, on rows of their own.
int64_t expert_rows(const Backend& backend, const MoeConfig& moe, int max_tokens) {
  return backend.host_memory() ? max_tokens : int64_t{max_tokens} * moe.experts_per_token;
}

}  // namespace

Prologue gated(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return Prologue::kSiluMul;
    case Activation::kGeluTanh:
      return Prologue::kGeluTanhMul;
    case Activation::kClampedSilu:
      return Prologue::kClampedSiluMul;
  }
  return Prologue::kSiluMul;
}

MoeBlock::MoeBlock(const ModelConfig& config, Backend& backend, int max_tokens)
    : moe_(config.moe),
      hidden_(config.hidden),
      gate_(gated(config.activation)),
      backend_(backend),
      columns_(moe_.experts_per_token + (moe_.shared_intermediate > 0 ? 1 : 0)),
      ids_(words(backend, max_tokens, moe_.experts_per_token)),
      offsets_(words(backend, moe_.experts + 1, 1)),
      tokens_(words(backend, max_tokens, moe_.experts_per_token)),
      rows_(words(backend, max_tokens, columns_)),
      logits_(words(backend, max_tokens, moe_.experts)),
      shared_gate_(words(backend, max_tokens, 1)),
      weights_(words(backend, max_tokens, columns_)),
      gathered_(backend.host_memory() ? words(backend, max_tokens, hidden_) : nullptr),
      gate_up_(words(backend, expert_rows(backend, moe_, max_tokens),
                     2 * std::max(moe_.intermediate, moe_.shared_intermediate))),
      outputs_(words(backend, int64_t{max_tokens} * columns_, hidden_)) {}

void MoeBlock::forward(Queue& queue, const MoeWeights& weights, const float* x, int num_tokens, float* out) {
  const auto project = [&](const LinearWeights& linear, float* y) {
    LinearParams p;
    p.weight = linear.weight.get();
    p.x = x;
    p.ldx = hidden_;
    p.m = num_tokens;
    p.bias = linear.bias_data();
    p.y = y;
    p.ldy = linear.weight->n();
    backend_.linear(queue, p);
  };
  project(weights.router, logits_->as<float>());
  const bool gated_shared = weights.shared_gate.weight != nullptr;
  if (gated_shared) project(weights.shared_gate, shared_gate_->as<float>());
  RouteExpertsParams route;
  route.logits = logits_->as<float>();
  route.num_tokens = num_tokens;
  route.experts = moe_.experts;
  route.chosen = moe_.experts_per_token;
  route.normalized = moe_.normalized;
  route.shared_gate = gated_shared ? shared_gate_->as<float>() : nullptr;
  route.columns = columns_;
  route.ids = ids_->as<int32_t>();
  route.weights = weights_->as<float>();
  backend_.route_experts(queue, route);
  GroupExpertsParams group;
  group.ids = route.ids;
  group.num_tokens = num_tokens;
  group.experts = moe_.experts;
  group.chosen = moe_.experts_per_token;
  group.columns = columns_;
  group.offsets = offsets_->as<int32_t>();
  group.tokens = tokens_->as<int32_t>();
  group.rows = rows_->as<int32_t>();
  backend_.group_experts(queue, group);

  float* outputs = outputs_->as<float>();
  RunExpertsParams run;
  run.table = weights.table.get();
  run.x = x;
  run.num_tokens = num_tokens;
  run.dim = hidden_;
  run.chosen = moe_.experts_per_token;
  run.gate = gate_;
  run.offsets = group.offsets;
  run.tokens = group.tokens;
  run.gathered = gathered_ ? gathered_->as<float>() : nullptr;
  run.gate_up = gate_up_->as<float>();
  run.out = outputs;
  backend_.run_experts(queue, run);
  if (moe_.shared_intermediate > 0) {
    run_shared(queue, weights.shared, x, num_tokens, outputs + int64_t{num_tokens} * moe_.experts_per_token * hidden_);
  }
  CombineExpertsParams combine;
  combine.x = outputs;
  combine.rows = group.rows;
  combine.weights = weights_->as<float>();
  combine.num_tokens = num_tokens;
  combine.columns = columns_;
  combine.dim = hidden_;
  combine.out = out;
  backend_.combine_experts(queue, combine);
}

void MoeBlock::run_shared(Queue& queue, const ExpertWeights& expert, const float* x, int num_tokens, float* out) {
  LinearParams up;
  up.weight = expert.gate_up.weight.get();
  up.x = x;
  up.ldx = hidden_;
  up.m = num_tokens;
  up.bias = expert.gate_up.bias_data();
  up.y = gate_up_->as<float>();
  up.ldy = expert.gate_up.weight->n();
  backend_.linear(queue, up);
  LinearParams down;
  down.weight = expert.down.weight.get();
  down.x = up.y;
  down.ldx = up.ldy;
  down.m = num_tokens;
  down.prologue = gate_;
  down.bias = expert.down.bias_data();
  down.y = out;
  down.ldy = hidden_;
  backend_.linear(queue, down);
}

}  // namespace octavo
