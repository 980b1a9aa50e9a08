#include "model/moe_block.h"

#include <algorithm>

namespace octavo {

namespace {

Buffer floats(int64_t rows, int64_t width) { return Buffer(static_cast<size_t>(rows * width) * sizeof(float)); }

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
      ids_(static_cast<size_t>(max_tokens) * moe_.experts_per_token),
      offsets_(moe_.experts + 1),
      tokens_(ids_.size()),
      rows_(static_cast<size_t>(max_tokens) * columns_),
      logits_(floats(max_tokens, moe_.experts)),
      shared_gate_(floats(max_tokens, 1)),
      weights_(floats(max_tokens, columns_)),
      gathered_(floats(max_tokens, hidden_)),
      gate_up_(floats(max_tokens, 2 * std::max(moe_.intermediate, moe_.shared_intermediate))),
      outputs_(floats(int64_t{max_tokens} * columns_, hidden_)) {}

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
  project(weights.router, logits_.as<float>());
  const bool gated_shared = weights.shared_gate.weight != nullptr;
  if (gated_shared) project(weights.shared_gate, shared_gate_.as<float>());
  RouteExpertsParams route;
  route.logits = logits_.as<float>();
  route.num_tokens = num_tokens;
  route.experts = moe_.experts;
  route.chosen = moe_.experts_per_token;
  route.normalized = moe_.normalized;
  route.shared_gate = gated_shared ? shared_gate_.as<float>() : nullptr;
  route.columns = columns_;
  route.ids = ids_.data();
  route.weights = weights_.as<float>();
  backend_.route_experts(queue, route);
  group_by_expert(num_tokens);

  float* outputs = outputs_.as<float>();
  for (int e = 0; e < moe_.experts; ++e) {
    const int first = offsets_[e], count = offsets_[e + 1] - first;
    if (count == 0) continue;
    GatherRowsParams gather;
    gather.x = x;
    gather.ldx = gather.ldo = gather.dim = hidden_;
    gather.rows = tokens_.data() + first;
    gather.num_rows = count;
    gather.out = gathered_.as<float>();
    backend_.gather_rows(queue, gather);
    run_expert(queue, weights.experts[e], gathered_.as<float>(), count, outputs + int64_t{first} * hidden_);
  }
  if (moe_.shared_intermediate > 0) {
    run_expert(queue, weights.shared, x, num_tokens, outputs + int64_t{num_tokens} * moe_.experts_per_token * hidden_);
  }
  CombineExpertsParams combine;
  combine.x = outputs;
  combine.rows = rows_.data();
  combine.weights = weights_.as<float>();
  combine.num_tokens = num_tokens;
  combine.columns = columns_;
  combine.dim = hidden_;
  combine.out = out;
  backend_.combine_experts(queue, combine);
}

// A counting sort: which tokens each expert has, and in which row each token finds its experts' outputs.
void MoeBlock::group_by_expert(int num_tokens) {
  const int chosen = moe_.experts_per_token;
  std::fill(offsets_.begin(), offsets_.end(), 0);
  for (int i = 0; i < num_tokens * chosen; ++i) ++offsets_[ids_[i] + 1];
  for (int e = 0; e < moe_.experts; ++e) offsets_[e + 1] += offsets_[e];
  for (int t = 0; t < num_tokens; ++t) {
    for (int c = 0; c < chosen; ++c) {
      const int32_t place = offsets_[ids_[t * chosen + c]]++;
      tokens_[place] = t;
      rows_[t * columns_ + c] = place;
    }
    if (columns_ > chosen) rows_[t * columns_ + chosen] = num_tokens * chosen + t;
  }
  // Every offset has moved to the next one's place.
  std::copy_backward(offsets_.begin(), offsets_.end() - 1, offsets_.end());
  offsets_[0] = 0;
}

void MoeBlock::run_expert(Queue& queue, const ExpertWeights& expert, const float* x, int num_tokens, float* out) {
  LinearParams up;
  up.weight = expert.gate_up.weight.get();
  up.x = x;
  up.ldx = hidden_;
  up.m = num_tokens;
  up.bias = expert.gate_up.bias_data();
  up.y = gate_up_.as<float>();
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
