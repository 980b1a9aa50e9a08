#include "runtime/local_executor.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/format.h"
#include "sample/beam.h"

namespace octavo {

LocalExecutor::LocalExecutor(Backend& backend, Queue& queue, Decoder& decoder, std::vector<KvPool*> pools,
                             const Limits& limits, Trace* trace)
    : backend_(backend),
      queue_(queue),
      decoder_(decoder),
      pools_(std::move(pools)),
      limits_(limits),
      inputs_(backend, static_cast<int>(pools_.size()), decoder.cache_place(decoder.config().num_layers - 1).group,
              {limits.max_tokens, limits.max_seqs, limits.max_blocks_per_seq}) {
  if (trace) phases_ = {trace->phase("batch"), trace->phase("sample"), trace->phase("score prompts")};
  const size_t max_tokens = static_cast<size_t>(limits.max_tokens);
  tokens_.reserve(max_tokens);
  positions_.reserve(max_tokens);
  logit_tokens_.reserve(2 * max_tokens);  // before duplicates go
  logit_row_.resize(max_tokens);
  rows_.resize(pools_.size());
  for (auto& rows : rows_) rows.reserve(max_tokens);
  groups_.resize(pools_.size());
  copies_.resize(pools_.size());
  // Touched only as far as a step asks for logits: one row per running sequence, and prompts that are scored.
  const size_t logits = max_tokens * static_cast<size_t>(decoder_.config().vocab) * sizeof(float);
  logits_ = backend.allocate(logits);
  if (!backend.host_memory()) host_logits_ = backend.allocate_staging(logits);
  scratch_.reserve(static_cast<size_t>(limits.threads));
  for (int i = 0; i < limits.threads; ++i) scratch_.emplace_back(decoder_.config().vocab);
  sampled_.reserve(static_cast<size_t>(limits.max_seqs));
  result_.samples.reserve(static_cast<size_t>(limits.max_seqs));
}

void LocalExecutor::add_sequence(SeqId seq, std::shared_ptr<const SamplingParams> params,
                                 std::span<const int32_t> history, size_t num_output, uint32_t choice) {
  Sequence s;
  s.state = SamplerState(*params, history.first(history.size() - num_output));
  for (const int32_t token : history.last(num_output)) s.state.append(token);
  s.choice = choice;
  if (params->prompt_logprobs >= 0) s.prompt.assign(history.begin(), history.end());
  s.scored = params->logprobs >= 0 || params->best_of > params->n;
  if (params->grammar) {
    s.mask.resize(static_cast<size_t>(decoder_.config().vocab + 31) / 32);
    try {
      s.constraint = params->grammar->start();
      for (const int32_t token : history.last(num_output)) s.constraint->accept(token);
    } catch (const Error& e) {
      s.grammar_error = e.what();
    }
  }
  s.params = std::move(params);
  sequences_.insert_or_assign(seq, std::move(s));
}

void LocalExecutor::fork_sequence(SeqId parent, SeqId child, uint32_t choice) {
  const Sequence& from = sequences_.at(parent);
  Sequence copy;
  copy.params = from.params;
  copy.state = from.state;
  copy.choice = choice;
  copy.scored = from.scored;
  copy.prompt = from.prompt;
  if (from.constraint) copy.constraint = from.constraint->fork();
  copy.mask.resize(from.mask.size());
  copy.grammar_error = from.grammar_error;
  sequences_.insert_or_assign(child, std::move(copy));
}

bool LocalExecutor::accept(SeqId seq, int32_t token) {
  Sequence& s = sequences_.at(seq);
  s.state.append(token);
  if (!s.constraint) return false;
  s.masked = false;
  s.constraint->accept(token);
  return s.constraint->done();
}

void LocalExecutor::list_forced(SeqId seq, std::vector<int32_t>& tokens) {
  const Sequence& s = sequences_.at(seq);
  if (s.constraint) s.constraint->list_forced(tokens);
}

void LocalExecutor::drop_sequence(SeqId seq) { sequences_.erase(seq); }

void LocalExecutor::submit(const StepPlan& plan, int slot) {
  if (slot != 0) throw Error(ErrorCode::kInternal, "slot", cat("this executor has one step slot, got slot ", slot));
  if (plan.tokens.size() > static_cast<size_t>(limits_.max_tokens))
    throw Error(ErrorCode::kInternal, "plan",
                cat("a step of ", plan.tokens.size(), " tokens exceeds the ", limits_.max_tokens, " it was built for"));
  build_batch(plan);
  ForwardBatch& batch = inputs_.stage(queue_, batch_);
  batch.logits = logits_->as<float>();
  start_masks(plan);
  try {
    decoder_.forward(queue_, batch, pools_);
    fetch_logits(batch.num_logits);
  } catch (...) {
    masks_.wait();  // they belong to sequences that may be dropped now
    throw;
  }
  masks_.wait();
  draw(plan, result_);
  score_prompts(plan, result_);
}

const StepResult& LocalExecutor::wait(int) { return result_; }

void LocalExecutor::build_batch(const StepPlan& plan) {
  const Trace::Span span(phases_.batch);
  const size_t num_tokens = plan.tokens.size();
  tokens_.assign(plan.tokens.begin(), plan.tokens.end());
  positions_.resize(num_tokens);
  for (const PlanRow& row : plan.rows)
    for (int32_t i = 0; i < row.n_tokens; ++i) positions_[row.token_offset + i] = row.first_pos + i;

  for (size_t g = 0; g < pools_.size(); ++g) {
    const StepPlan::Group& group = plan.groups[g];
    rows_[g].clear();
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      const PlanRow& row = plan.rows[r];
      rows_[g].push_back({row.token_offset, row.n_tokens, row.first_pos, group.tables.data() + group.table_offsets[r]});
    }
    copies_[g].clear();
    for (const BlockCopy& c : plan.copies)
      if (c.group == static_cast<int32_t>(g)) copies_[g].push_back({c.src, c.dst, c.slots});
    groups_[g] = {group.slots, rows_[g], group.tables, copies_[g]};
  }
  prefix_groups_.clear();
  for (const PrefixGroup& p : plan.prefix_groups)
    prefix_groups_.push_back({p.rows.data(), static_cast<int32_t>(p.rows.size()), p.partitions});

  // Logits: what is sampled and what is scored, each token once.
  logit_tokens_.clear();
  for (const SampleRow& s : plan.samples) logit_tokens_.push_back(s.token);
  for (const PlanRow& row : plan.rows)
    if (row.logits == LogitsWanted::kRange)
      for (int32_t i = row.logits_first; i < row.n_tokens; ++i) logit_tokens_.push_back(row.token_offset + i);
  std::sort(logit_tokens_.begin(), logit_tokens_.end());
  logit_tokens_.erase(std::unique(logit_tokens_.begin(), logit_tokens_.end()), logit_tokens_.end());
  for (size_t i = 0; i < logit_tokens_.size(); ++i) logit_row_[logit_tokens_[i]] = static_cast<int32_t>(i);

  batch_.tokens = tokens_;
  batch_.positions = positions_;
  batch_.groups = groups_;
  batch_.prefix_groups = prefix_groups_;
  batch_.logit_tokens = logit_tokens_;
}

// The step is done when this returns.
void LocalExecutor::fetch_logits(int rows) {
  if (host_logits_) {
    backend_.download(queue_, host_logits_->data(), logits_->data(),
                      static_cast<size_t>(rows) * static_cast<size_t>(decoder_.config().vocab) * sizeof(float));
  }
  queue_.wait();
}

const float* LocalExecutor::logits_of(int token) const {
  const DeviceMemory& logits = host_logits_ ? *host_logits_ : *logits_;
  return logits.as<float>() + static_cast<size_t>(logit_row_[token]) * static_cast<size_t>(decoder_.config().vocab);
}

// Finds the sequences to be sampled and has their masks filled.
void LocalExecutor::start_masks(const StepPlan& plan) {
  sampled_.clear();
  mask_jobs_.clear();
  for (const SampleRow& row : plan.samples) {
    const auto it = sequences_.find(row.state);
    sampled_.push_back(it == sequences_.end() ? nullptr : &it->second);  // null: cancelled, its outcome is not read
    Sequence* s = sampled_.back();
    if (s == nullptr || !s->constraint || s->masked || !s->grammar_error.empty()) continue;
    s->masked = true;
    mask_jobs_.push_back({s->constraint.get(), &s->mask, &s->grammar_error});
  }
  masks_.start(mask_jobs_);
}

void LocalExecutor::draw(const StepPlan& plan, StepResult& result) {
  const Trace::Span span(phases_.sample);
  const int n = static_cast<int>(plan.samples.size());
  result.samples.resize(plan.samples.size());
  // Strided over the threads so that each uses its own scratch.
  const int threads = static_cast<int>(scratch_.size());
  queue_.parallel_for(std::min(n, threads), [&](int worker) {
    for (int i = worker; i < n; i += threads) {
      if (!sampled_[i]) continue;
      const Sequence& s = *sampled_[i];
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
        const int count = BeamSearch::candidates_per_beam(s.params->beam_width, s.params->stop_token_ids.size());
        out.status = best_tokens(logits, in.vocab, count, scratch_[worker], out.candidates);
        continue;
      }
      const SampleResult drawn = sample(in, scratch_[worker]);
      out.status = drawn.status;
      out.token = drawn.token;
      if (drawn.status == SampleStatus::kOk && s.scored)
        out.status =
            score_token(logits, in.vocab, drawn.token, std::max(s.params->logprobs, 0), scratch_[worker], out.logprobs);
    }
  });
}

void LocalExecutor::score_prompts(const StepPlan& plan, StepResult& result) {
  const Trace::Span span(phases_.score);
  result.prompt_scores.clear();
  for (const PlanRow& row : plan.rows) {
    if (row.logits != LogitsWanted::kRange) continue;
    const auto it = sequences_.find(row.seq);
    if (it == sequences_.end()) continue;
    const Sequence& s = it->second;
    PromptScores scores;
    scores.seq = row.seq;
    scores.first_pos = row.first_pos + row.logits_first + 1;
    for (int32_t i = row.logits_first; i < row.n_tokens; ++i) {
      const size_t next = static_cast<size_t>(row.first_pos + i + 1);
      if (next >= s.prompt.size()) break;
      PositionLogprobs p;
      const SampleStatus status = score_token(logits_of(row.token_offset + i), decoder_.config().vocab, s.prompt[next],
                                              s.params->prompt_logprobs, scratch_[0], p);
      if (status != SampleStatus::kOk) scores.status = status;
      scores.scores.push_back(std::move(p));
    }
    result.prompt_scores.push_back(std::move(scores));
  }
}

}  // namespace octavo
