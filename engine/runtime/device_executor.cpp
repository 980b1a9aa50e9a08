#include "runtime/device_executor.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

DeviceExecutor::Slot::Slot(Backend& backend, Queue& queue, const Decoder& decoder, const Limits& limits)
    : inputs(backend, static_cast<int>(decoder.kv_groups().size()),
             decoder.cache_place(decoder.config().num_layers - 1).group,
             {limits.max_tokens, limits.max_seqs, limits.max_blocks_per_seq}),
      draws(backend, queue, decoder.config().vocab),
      graphs(backend, queue, limits.max_seqs, limits.max_positions),
      done(backend.device_steps()->make_event()) {
  const size_t bytes = static_cast<size_t>(limits.max_tokens) * sizeof(int32_t);
  host_sources = backend.allocate_staging(bytes);
  sources = backend.allocate(bytes);
}

DeviceExecutor::DeviceExecutor(Backend& backend, Queue& queue, Decoder& decoder, std::vector<KvPool*> pools,
                               const Limits& limits, Trace* trace)
    : StatefulExecutor(decoder.config().vocab),
      backend_(backend),
      queue_(queue),
      decoder_(decoder),
      pools_(std::move(pools)),
      limits_(limits),
      plan_batch_(pools_.size(), limits.max_tokens),
      draw_rows_(backend, queue, decoder.config().vocab) {
  if (trace) phases_ = {trace->phase("batch"), trace->phase("launch"), trace->phase("draw"), trace->phase("read")};
  for (auto& slot : slots_) slot = std::make_unique<Slot>(backend, queue, decoder, limits);
  grow(logits_, limits.max_seqs);
}

// What is under way reads and writes what goes now.
DeviceExecutor::~DeviceExecutor() {
  try {
    queue_.wait();
  } catch (const std::exception&) {
  }
}

void DeviceExecutor::submit(const StepPlan& plan, int index) {
  if (plan.tokens.size() > static_cast<size_t>(limits_.max_tokens))
    throw Error(ErrorCode::kInternal, "plan",
                cat("a step of ", plan.tokens.size(), " tokens exceeds the ", limits_.max_tokens, " it was built for"));
  Slot& slot = *slots_.at(static_cast<size_t>(index));
  try {
    start(plan, slot);
  } catch (...) {
    states_.finish_masks();
    states_.forget_devices();
    throw;
  }
}

void DeviceExecutor::start(const StepPlan& plan, Slot& slot) {
  slot.step = 0;
  const std::vector<SampledSequence*>& sampled = states_.start(plan);
  const int padded_rows = limits_.graphs ? slot.graphs.rows_for(plan) : 0;
  const Trace::Span batching(phases_.batch);
  ForwardBatch& batch = slot.inputs.stage(queue_, plan_batch_.build(plan, static_cast<size_t>(padded_rows)));
  take_tokens(plan, slot);
  if (grow(logits_, batch.num_logits))
    for (auto& s : slots_) s->graphs.forget();
  batch.logits = logits_->as<float>();
  {
    const Trace::Span span(phases_.launch);
    forward(batch, slot, padded_rows);
  }
  const Trace::Span span(phases_.draw);
  slot.draws.prepare(plan, sampled, states_, plan_batch_, draw_rows_);
  states_.finish_masks();
  grow(changed_, slot.draws.num_changed());
  slot.draws.launch(batch.logits, batch.tokens, changed_ ? changed_->as<float>() : nullptr);
  slot.done->record(queue_);
  slot.step = plan.step;
}

// The tokens that the step before draws, which is still under way.
void DeviceExecutor::take_tokens(const StepPlan& plan, Slot& slot) {
  if (std::ranges::all_of(plan.rows, [](const PlanRow& row) { return row.from_row < 0; })) return;
  int32_t* sources = slot.host_sources->as<int32_t>();
  std::fill_n(sources, plan.tokens.size(), -1);
  const DrawnToken* drawn = nullptr;
  for (const PlanRow& row : plan.rows) {
    if (row.from_row < 0) continue;
    const auto from = std::ranges::find_if(slots_, [&](const auto& s) { return s->step == row.from_step; });
    if (from == slots_.end())
      throw Error(ErrorCode::kInternal, "plan",
                  cat("step ", plan.step, " takes a token from step ", row.from_step, ", which is not under way"));
    drawn = (*from)->draws.drawn();
    sources[row.token_offset] = row.from_row;
  }
  const size_t bytes = plan.tokens.size() * sizeof(int32_t);
  backend_.upload(queue_, slot.sources->data(), sources, bytes);
  TakeTokensParams p;
  p.tokens = slot.inputs.device_tokens();
  p.sources = slot.sources->as<int32_t>();
  p.drawn = drawn;
  p.num_tokens = static_cast<int32_t>(plan.tokens.size());
  backend_.device_steps()->take_tokens(queue_, p);
}

void DeviceExecutor::forward(ForwardBatch& batch, Slot& slot, int padded_rows) {
  const auto run = [&] { decoder_.forward(queue_, batch, pools_); };
  if (padded_rows == 0) return run();
  int context = 1;
  for (const ForwardBatch::Group& group : batch.groups)
    context = std::max(context, group.attention.extent.longest_context);
  context = slot.graphs.round_context(context);
  slot.inputs.assume_context(context);
  slot.graphs.run(padded_rows, context, run);
}

// True when the memory lies elsewhere now.
bool DeviceExecutor::grow(std::unique_ptr<DeviceMemory>& memory, int rows) {
  const size_t row = static_cast<size_t>(decoder_.config().vocab) * sizeof(float);
  if (rows == 0 || (memory && memory->size() >= static_cast<size_t>(rows) * row)) return false;
  queue_.wait();  // nothing reads the old one any more
  memory.reset();
  memory = backend_.allocate(std::bit_ceil(static_cast<size_t>(rows)) * row);
  return true;
}

const StepResult& DeviceExecutor::wait(int index) {
  Slot& slot = *slots_.at(static_cast<size_t>(index));
  try {
    slot.done->wait();
    const Trace::Span span(phases_.read);
    slot.draws.read(slot.result);
  } catch (...) {
    states_.forget_devices();
    throw;
  }
  return slot.result;
}

}  // namespace octavo
