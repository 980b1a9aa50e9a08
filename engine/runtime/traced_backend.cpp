#include "runtime/traced_backend.h"

#include <numeric>
#include <string>

#include "ops/experts_in_turn.h"

namespace octavo {
namespace {

// "q_proj" of "model.layers.0.self_attn.q_proj.weight": the same for every layer.
std::string role(const std::string& tensor) {
  const size_t end = tensor.ends_with(".weight") ? tensor.size() - 7 : tensor.size();
  const size_t dot = tensor.rfind('.', end - 1);
  return tensor.substr(dot == std::string::npos ? 0 : dot + 1, dot == std::string::npos ? end : end - dot - 1);
}

std::string roles(const std::vector<MatrixSource>& parts) {
  std::string all;
  for (const MatrixSource& part : parts) {
    if (!all.empty()) all += '+';
    all += role(part.name);
  }
  return all;
}

}  // namespace

TracedBackend::TracedBackend(std::unique_ptr<Backend> inner, Trace& trace)
    : inner_(std::move(inner)),
      trace_(trace),
      embed_(trace.phase("embed")),
      norm_(trace.phase("rms_norm")),
      rope_(trace.phase("rope and KV write")),
      attention_(trace.phase("attention")),
      silu_(trace.phase("silu_mul")),
      residual_(trace.phase("residual_add")),
      logits_(trace.phase("scale_logits")),
      route_(trace.phase("route_experts")),
      group_(trace.phase("group_experts")),
      experts_(inner_->host_memory() ? nullptr : trace.phase("run_experts")),
      combine_(trace.phase("combine_experts")),
      gather_(trace.phase("gather_rows")),
      copy_(trace.phase("copy_blocks")) {}

std::unique_ptr<PackedWeight> TracedBackend::pack(Queue& queue, const std::vector<MatrixSource>& parts) {
  auto packed = inner_->pack(queue, parts);
  const std::string name = roles(parts);
  linears_[packed.get()] = {trace_.phase("prepare " + name), trace_.phase("linear " + name),
                            trace_.phase("around linear")};
  return packed;
}

std::unique_ptr<OutputScreen> TracedBackend::make_screen(Queue& queue, const PackedWeight& weight) {
  return inner_->make_screen(queue, weight);
}

void TracedBackend::linear(Queue& queue, const LinearParams& p) {
  const LinearPhases& phases = linears_.at(p.weight);
  for (Trace::Phase* phase : {phases.rest, phases.prepare, phases.product}) Trace::enter(phase);
  RegionTimes regions;
  queue.watch_regions(&regions);
  const int64_t begin = monotonic_ns();
  inner_->linear(queue, p);
  int64_t rest = monotonic_ns() - begin;
  queue.watch_regions(nullptr);
  auto note = [&](Trace::Phase* phase, int64_t ns) {
    phase->ns += ns;
    ++phase->count;
    rest -= ns;
  };
  if (p.screen) {  // every region is a part of the product
    note(phases.product, std::accumulate(regions.ns, regions.ns + regions.count, int64_t{0}));
  } else {
    if (regions.count > 1) note(phases.prepare, regions.ns[0]);
    if (regions.count > 0) note(phases.product, regions.ns[regions.count - 1]);
  }
  note(phases.rest, rest);
}

void TracedBackend::embed(Queue& queue, const EmbedParams& p) {
  const Trace::Span span(embed_);
  inner_->embed(queue, p);
}

void TracedBackend::rms_norm(Queue& queue, const RmsNormParams& p) {
  const Trace::Span span(norm_);
  inner_->rms_norm(queue, p);
}

void TracedBackend::rope_write(Queue& queue, const RopeWriteParams& p) {
  const Trace::Span span(rope_);
  inner_->rope_write(queue, p);
}

void TracedBackend::attention(Queue& queue, const AttentionParams& p) {
  const Trace::Span span(attention_);
  inner_->attention(queue, p);
}

void TracedBackend::silu_mul(Queue& queue, const SiluMulParams& p) {
  const Trace::Span span(silu_);
  inner_->silu_mul(queue, p);
}

void TracedBackend::residual_add(Queue& queue, const ResidualAddParams& p) {
  const Trace::Span span(residual_);
  inner_->residual_add(queue, p);
}

void TracedBackend::scale_logits(Queue& queue, const ScaleLogitsParams& p) {
  const Trace::Span span(logits_);
  inner_->scale_logits(queue, p);
}

void TracedBackend::route_experts(Queue& queue, const RouteExpertsParams& p) {
  const Trace::Span span(route_);
  inner_->route_experts(queue, p);
}

void TracedBackend::group_experts(Queue& queue, const GroupExpertsParams& p) {
  const Trace::Span span(group_);
  inner_->group_experts(queue, p);
}

// Where experts run in turn, their products are told apart.
void TracedBackend::run_experts(Queue& queue, const RunExpertsParams& p) {
  if (inner_->host_memory()) return run_experts_in_turn(*this, queue, p);
  const Trace::Span span(experts_);
  inner_->run_experts(queue, p);
}

void TracedBackend::combine_experts(Queue& queue, const CombineExpertsParams& p) {
  const Trace::Span span(combine_);
  inner_->combine_experts(queue, p);
}

void TracedBackend::gather_rows(Queue& queue, const GatherRowsParams& p) {
  const Trace::Span span(gather_);
  inner_->gather_rows(queue, p);
}

void TracedBackend::copy_blocks(Queue& queue, const CopyBlocksParams& p) {
  const Trace::Span span(copy_);
  inner_->copy_blocks(queue, p);
}

}  // namespace octavo
