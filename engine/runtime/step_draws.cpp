#include "runtime/step_draws.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "ops/device_steps.h"
#include "sample/select.h"

namespace octavo {

namespace {

bool changes_logits(const DrawRow& r) {
  return r.num_bias > 0 || r.seen != nullptr || r.num_bad_words > 0 || r.num_stops > 0 || r.allowed != nullptr;
}

SampleStatus status_of(DrawStatus status) {
  switch (status) {
    case DrawStatus::kOk:
      return SampleStatus::kOk;
    case DrawStatus::kNonFinite:
      return SampleStatus::kNonFinite;
    case DrawStatus::kAllMasked:
      return SampleStatus::kAllMasked;
  }
  return SampleStatus::kNonFinite;
}

float logprob(const DrawnToken& d, float logit) {
  return std::max(static_cast<float>(double{logit} - d.max - std::log(d.sum_exp)), kMinLogprob);
}

}  // namespace

StepDraws::StepDraws(Backend& backend, Queue& queue, int vocab) : backend_(backend), queue_(queue), vocab_(vocab) {}

void StepDraws::Twin::grow(Backend& backend, Queue& queue, size_t bytes) {
  if (host && host->size() >= bytes) return;
  queue.wait();  // nothing reads the old ones any more
  host = backend.allocate_staging(2 * bytes);
  device = backend.allocate(2 * bytes);
}

void StepDraws::add(DrawRow row, Wanted wanted, const SampledSequence* masked_by) {
  if (masked_by != nullptr || changes_logits(row)) row.changed = num_changed_++;
  row.best = num_best_;
  wanted.best = num_best_;
  wanted.num_best = std::min(row.num_best, vocab_);
  num_best_ += wanted.num_best;
  rows_.push_back(row);
  wanted_.push_back(std::move(wanted));
  masked_by_.push_back(masked_by);
}

void StepDraws::prepare(const StepPlan& plan, const std::vector<SampledSequence*>& sampled, SequenceStates& states,
                        const PlanBatch& batch, DrawRows& rows) {
  rows_.clear();
  wanted_.clear();
  masked_by_.clear();
  prompts_.clear();
  num_changed_ = 0;
  num_best_ = 0;
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const SampleRow& sample = plan.samples[i];
    SampledSequence* s = sampled[i];
    DrawRow row;
    row.mode = DrawMode::kNone;
    if (s != nullptr) row = rows.make(*s, sample.position, sample.token);
    row.logits = batch.logit_row(sample.token);
    Wanted wanted;
    wanted.present = s != nullptr;
    wanted.beam = s != nullptr && s->params->beam_width > 0;
    add(row, std::move(wanted), s != nullptr && s->params->grammar ? s : nullptr);
  }
  num_samples_ = rows_.size();
  for (const PlanRow& row : plan.rows) {
    const SampledSequence* s = row.logits == LogitsWanted::kRange ? states.find(row.seq) : nullptr;
    if (s == nullptr) continue;
    Scored& scored = prompts_.emplace_back();
    scored.scores = {row.seq, row.first_pos + row.logits_first + 1, SampleStatus::kOk, {}};
    scored.first_draw = rows_.size();
    for (int32_t i = row.logits_first; i < row.n_tokens; ++i) {
      const auto next = static_cast<size_t>(row.first_pos + i + 1);
      if (next >= s->prompt.size()) break;
      DrawRow draw;
      draw.mode = DrawMode::kNone;
      draw.logits = batch.logit_row(row.token_offset + i);
      draw.scored = 1;
      draw.score_token = s->prompt[next];
      draw.num_best = s->params->prompt_logprobs;
      Wanted wanted;
      wanted.present = true;
      wanted.token = draw.score_token;
      add(draw, std::move(wanted), nullptr);
    }
    scored.count = rows_.size() - scored.first_draw;
  }
  drawn_.grow(backend_, queue_, std::max<size_t>(rows_.size(), 1) * sizeof(DrawnToken));
}

void StepDraws::launch(const float* logits, const int32_t* tokens, float* changed) {
  if (rows_.empty()) return;
  const size_t words = static_cast<size_t>(vocab_ + 31) / 32;
  const size_t rows_bytes = rows_.size() * sizeof(DrawRow);
  const auto masked =
      static_cast<size_t>(std::ranges::count_if(masked_by_, [](const auto* s) { return s != nullptr; }));
  const size_t bytes = rows_bytes + masked * words * sizeof(uint32_t);
  inputs_.grow(backend_, queue_, bytes);
  best_.grow(backend_, queue_, std::max<size_t>(static_cast<size_t>(num_best_), 1) * sizeof(uint64_t));
  size_t at = rows_bytes;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const SampledSequence* s = masked_by_[i];
    if (s == nullptr) continue;
    wanted_[i].grammar = s->grammar_error;
    rows_[i].grammar = reinterpret_cast<const uint32_t*>(inputs_.device->data() + at);
    std::memcpy(inputs_.host->data() + at, s->mask.data(), words * sizeof(uint32_t));
    at += words * sizeof(uint32_t);
  }
  std::memcpy(inputs_.host->data(), rows_.data(), rows_bytes);
  backend_.upload(queue_, inputs_.device->data(), inputs_.host->data(), bytes);

  DrawParams p;
  p.logits = logits;
  p.vocab = vocab_;
  p.rows = inputs_.device->as<DrawRow>();
  p.num_rows = static_cast<int32_t>(rows_.size());
  p.tokens = tokens;
  p.changed = changed;
  p.drawn = drawn_.device->as<DrawnToken>();
  p.best = best_.device->as<uint64_t>();
  backend_.device_steps()->draw(queue_, p);
  backend_.download(queue_, drawn_.host->data(), drawn_.device->data(), rows_.size() * sizeof(DrawnToken));
  backend_.download(queue_, best_.host->data(), best_.device->data(),
                    static_cast<size_t>(num_best_) * sizeof(uint64_t));
}

// Masked tokens come last, by ascending id, and share a rank.
void StepDraws::list_best(size_t draw, std::vector<TokenLogprob>& out) const {
  const DrawnToken& d = drawn_.host->as<DrawnToken>()[draw];
  const Wanted& w = wanted_[draw];
  const uint64_t* first = best_.host->as<uint64_t>() + w.best;
  std::vector<uint64_t> keys(first, first + w.num_best);
  std::ranges::sort(keys, std::greater<>());
  out.clear();
  out.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const float logit = key_logit(keys[i]);
    const bool tie = i > 0 && logit == key_logit(keys[i - 1]);
    out.push_back({key_token(keys[i]), logprob(d, logit), tie ? out.back().rank : static_cast<int32_t>(i) + 1});
  }
}

PositionLogprobs StepDraws::scored(size_t draw) const {
  const DrawnToken& d = drawn_.host->as<DrawnToken>()[draw];
  PositionLogprobs out;
  const int32_t token = wanted_[draw].token >= 0 ? wanted_[draw].token : d.token;
  out.chosen = {token, logprob(d, d.logit), d.rank};
  list_best(draw, out.top);
  return out;
}

void StepDraws::read(StepResult& result) const {
  result.samples.resize(num_samples_);
  for (size_t i = 0; i < num_samples_; ++i) {
    SampleOutput& out = result.samples[i];
    out = {};
    const Wanted& w = wanted_[i];
    if (!w.present) continue;
    const DrawnToken& d = drawn_.host->as<DrawnToken>()[i];
    out.status = status_of(d.status);
    if (!w.grammar.empty()) {
      out.status = SampleStatus::kGrammar;
      out.why = w.grammar;
    }
    if (out.status != SampleStatus::kOk) continue;
    if (w.beam) {
      list_best(i, out.candidates);
    } else {
      out.token = d.token;
      if (rows_[i].scored) out.logprobs = scored(i);
    }
  }
  result.prompt_scores.clear();
  for (const Scored& prompt : prompts_) {
    PromptScores& scores = result.prompt_scores.emplace_back(prompt.scores);
    for (size_t i = prompt.first_draw; i < prompt.first_draw + prompt.count; ++i) {
      const SampleStatus status = status_of(drawn_.host->as<DrawnToken>()[i].status);
      if (status == SampleStatus::kOk) {
        scores.scores.push_back(scored(i));
      } else {
        scores.status = status;
        scores.scores.emplace_back();
      }
    }
  }
}

}  // namespace octavo
