#include "runtime/local_executor.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/format.h"
#include "sample/stages.h"

namespace octavo {
namespace {

// Whatever ends the step, the pools learn of it.
class Writes {
 public:
  explicit Writes(const std::vector<KvPool*>& pools) : pools_(pools) {}
  ~Writes() {
    for (KvPool* pool : pools_) pool->end_writes();
  }
  Writes(const Writes&) = delete;
  Writes& operator=(const Writes&) = delete;

 private:
  const std::vector<KvPool*>& pools_;
};

// Nobody looks at a logit that is not the greatest of its row.
bool wants_greatest_only(const StepPlan& plan, const std::vector<SampledSequence*>& sampled) {
  for (const SampledSequence* s : sampled) {
    if (s == nullptr) continue;  // cancelled, nothing is drawn
    const SamplingParams& p = *s->params;
    if (!is_greedy(p) || changes_logits(p, s->state) || s->constraint || s->scored || p.beam_width > 0) return false;
  }
  return std::ranges::none_of(plan.rows, [](const PlanRow& r) { return r.logits == LogitsWanted::kRange; });
}

}  // namespace

LocalExecutor::LocalExecutor(Backend& backend, Queue& queue, Decoder& decoder, std::vector<KvPool*> pools,
                             const Limits& limits, Trace* trace)
    : StatefulExecutor(decoder.config().vocab),
      queue_(queue),
      decoder_(decoder),
      pools_(std::move(pools)),
      limits_(limits),
      plan_batch_(pools_.size(), limits.max_tokens),
      inputs_(backend, static_cast<int>(pools_.size()), decoder.cache_place(decoder.config().num_layers - 1).group,
              {limits.max_tokens, limits.max_seqs, limits.max_blocks_per_seq}) {
  if (trace) phases_ = {trace->phase("batch"), trace->phase("sample"), trace->phase("score prompts")};
  // Touched only as far as a step asks for logits: one row per running sequence, and prompts that are scored.
  const size_t logits =
      static_cast<size_t>(limits.max_tokens) * static_cast<size_t>(decoder_.config().vocab) * sizeof(float);
  logits_ = backend.allocate(logits);
  scratch_.reserve(static_cast<size_t>(limits.threads));
  for (int i = 0; i < limits.threads; ++i) scratch_.emplace_back(decoder_.config().vocab);
  result_.samples.reserve(static_cast<size_t>(limits.max_seqs));
}

void LocalExecutor::submit(const StepPlan& plan, int slot) {
  if (slot != 0) throw Error(ErrorCode::kInternal, "slot", cat("this executor has one step slot, got slot ", slot));
  if (plan.tokens.size() > static_cast<size_t>(limits_.max_tokens))
    throw Error(ErrorCode::kInternal, "plan",
                cat("a step of ", plan.tokens.size(), " tokens exceeds the ", limits_.max_tokens, " it was built for"));
  const Writes writes(pools_);
  ForwardBatch& batch = stage(plan);
  batch.logits = logits_->as<float>();
  const std::vector<SampledSequence*>& sampled = states_.start(plan);
  batch.greatest_only = wants_greatest_only(plan, sampled);
  try {
    decoder_.forward(queue_, batch, pools_);
  } catch (...) {
    states_.finish_masks();  // they belong to sequences that may be dropped now
    throw;
  }
  states_.finish_masks();
  draw(plan, sampled, result_);
  score_prompts(plan, result_);
}

const StepResult& LocalExecutor::wait(int) { return result_; }

ForwardBatch& LocalExecutor::stage(const StepPlan& plan) {
  const Trace::Span span(phases_.batch);
  const HostBatch& host = plan_batch_.build(plan);
  for (size_t g = 0; g < pools_.size(); ++g) {
    const auto slots = host.groups[g].slots;
    pools_[g]->begin_writes(slots.empty() ? -1 : *std::max_element(slots.begin(), slots.end()));
  }
  return inputs_.stage(queue_, host);
}

const float* LocalExecutor::logits_of(int token) const {
  return logits_->as<float>() +
         static_cast<size_t>(plan_batch_.logit_row(token)) * static_cast<size_t>(decoder_.config().vocab);
}

void LocalExecutor::draw(const StepPlan& plan, const std::vector<SampledSequence*>& sampled, StepResult& result) {
  const Trace::Span span(phases_.sample);
  const int n = static_cast<int>(plan.samples.size());
  result.samples.resize(plan.samples.size());
  // Strided over the threads so that each uses its own scratch.
  const int threads = static_cast<int>(scratch_.size());
  queue_.parallel_for(std::min(n, threads), [&](int worker) {
    for (int i = worker; i < n; i += threads) {
      if (!sampled[i]) continue;  // cancelled, its outcome is not read
      const SampledSequence& s = *sampled[i];
      SampleOutput& out = result.samples[i];
      const SampleRow& row = plan.samples[i];
      const float* logits = logits_of(row.token);
      SampleInput in;
      in.logits = logits;
      in.vocab = decoder_.config().vocab;
      in.params = s.params.get();
      in.state = &s.state;
      in.choice = s.choice;
      in.position = row.position;
      in.mask = s.constraint ? s.mask.data() : nullptr;
      if (!s.grammar_error.empty()) {
        out.status = SampleStatus::kGrammar;
        out.why = s.grammar_error;
        continue;
      }
      if (s.params->beam_width > 0) {
        out.status = best_tokens(logits, in.vocab, s.num_best(), scratch_[worker], out.candidates);
        continue;
      }
      const SampleResult drawn = sample(in, scratch_[worker]);
      out.status = drawn.status;
      out.token = drawn.token;
      if (drawn.status == SampleStatus::kOk && s.scored)
        out.status = score_token(logits, in.vocab, drawn.token, s.num_best(), scratch_[worker], out.logprobs);
    }
  });
}

void LocalExecutor::score_prompts(const StepPlan& plan, StepResult& result) {
  const Trace::Span span(phases_.score);
  result.prompt_scores.clear();
  for (const PlanRow& row : plan.rows) {
    if (row.logits != LogitsWanted::kRange) continue;
    const SampledSequence* s = states_.find(row.seq);
    if (s == nullptr) continue;
    PromptScores scores;
    scores.seq = row.seq;
    scores.first_pos = row.first_pos + row.logits_first + 1;
    for (int32_t i = row.logits_first; i < row.n_tokens; ++i) {
      const size_t next = static_cast<size_t>(row.first_pos + i + 1);
      if (next >= s->prompt.size()) break;
      PositionLogprobs p;
      const SampleStatus status = score_token(logits_of(row.token_offset + i), decoder_.config().vocab, s->prompt[next],
                                              s->params->prompt_logprobs, scratch_[0], p);
      if (status != SampleStatus::kOk) scores.status = status;
      scores.scores.push_back(std::move(p));
    }
    result.prompt_scores.push_back(std::move(scores));
  }
}

}  // namespace octavo
