#include "hash_executor.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/format.h"
#include "sample/beam.h"

namespace octavo {

namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
  return x ^ x >> 32;
}

float logprob_of(uint64_t logits, int32_t token) {
  return -static_cast<float>(mix(logits, static_cast<uint64_t>(token)) % 4096) / 256.0f;
}

[[noreturn]] void wrong(const std::string& what) { throw Error(ErrorCode::kInternal, "plan", what); }

}  // namespace

HashExecutor::HashExecutor(HashModel model) : model_(std::move(model)), slots_(static_cast<size_t>(model_.slots)) {
  for (const CacheGroup& g : model_.sched.groups)
    kv_.emplace_back(static_cast<size_t>(g.num_blocks) * static_cast<size_t>(model_.sched.block_size));
}

void HashExecutor::add_sequence(SeqId seq, std::shared_ptr<const SamplingParams> params,
                                std::span<const int32_t> history, size_t num_output, uint32_t choice) {
  Sequence s{std::move(params), {history.begin(), history.end()}, choice, nullptr};
  if (s.params->grammar) {
    s.constraint = s.params->grammar->start();
    for (const int32_t token : history.last(num_output)) s.constraint->accept(token);
  }
  sequences_.insert_or_assign(seq, std::move(s));
}

void HashExecutor::fork_sequence(SeqId parent, SeqId child, uint32_t choice) {
  const Sequence& from = sequences_.at(parent);
  sequences_.insert_or_assign(
      child, Sequence{from.params, from.history, choice, from.constraint ? from.constraint->fork() : nullptr});
}

bool HashExecutor::accept(SeqId seq, int32_t token) {
  Sequence& s = sequences_.at(seq);
  s.history.push_back(token);
  if (!s.constraint) return false;
  s.constraint->accept(token);
  return s.constraint->done();
}

void HashExecutor::list_forced(SeqId seq, std::vector<int32_t>& tokens) {
  const Sequence& s = sequences_.at(seq);
  if (s.constraint) s.constraint->list_forced(tokens);
}

void HashExecutor::drop_sequence(SeqId seq) { sequences_.erase(seq); }

// What is drawn depends on the tokens before it where there are penalties.
bool HashExecutor::needs_tokens(const SamplingParams& params) const {
  return params.grammar != nullptr || params.frequency_penalty != 0.0f;
}

void HashExecutor::submit(const StepPlan& plan, int slot) {
  if (failing_submits_.erase(submits_++) > 0) throw std::runtime_error("a submit was made to fail");
  Slot& s = slots_.at(static_cast<size_t>(slot));
  if (s.plan != nullptr) wrong(cat("slot ", slot, " is under way"));
  for (const PlanRow& row : plan.rows) {
    const auto first = plan.tokens.begin() + row.token_offset;
    if (row.from_row < 0 && std::find(first, first + row.n_tokens, model_.poison) != first + row.n_tokens)
      throw std::runtime_error("a poisoned token");
  }
  s.plan = &plan;
}

const StepResult& HashExecutor::wait(int slot) {
  Slot& s = slots_.at(static_cast<size_t>(slot));
  if (s.plan == nullptr) wrong(cat("slot ", slot, " is not under way"));
  const StepPlan& plan = *std::exchange(s.plan, nullptr);
  const bool fails = failing_waits_.erase(waits_++) > 0;
  copy(plan);
  forward(plan);
  draw(plan, s.result);
  if (fails) throw std::runtime_error("a wait was made to fail");
  return s.result;
}

int32_t HashExecutor::input(const StepPlan& plan, const PlanRow& row, int32_t i) const {
  if (row.from_row < 0) return plan.tokens[row.token_offset + i];
  const auto step = drawn_.find(row.from_step);
  if (step == drawn_.end()) wrong(cat("step ", plan.step, " takes a token from step ", row.from_step));
  return step->second.at(static_cast<size_t>(row.from_row));
}

void HashExecutor::copy(const StepPlan& plan) {
  const int size = model_.sched.block_size;
  for (const BlockCopy& c : plan.copies)
    for (int i = 0; i < c.slots; ++i) {
      const auto g = static_cast<size_t>(c.group);
      cell(g, c.dst * size + i) = cell(g, c.src * size + i);
    }
}

void HashExecutor::forward(const StepPlan& plan) {
  const int size = model_.sched.block_size;
  logits_.assign(plan.tokens.size(), 0);
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    for (int32_t i = 0; i < row.n_tokens; ++i) {
      const int32_t token = input(plan, row, i);
      if (token == model_.poison) throw std::runtime_error("a poisoned token");
      const int32_t position = row.first_pos + i;
      uint64_t& logits = logits_[row.token_offset + i];
      for (size_t g = 0; g < kv_.size(); ++g) {
        const StepPlan::Group& group = plan.groups[g];
        const int32_t* table = group.tables.data() + group.table_offsets[r];
        const auto at = [&](int32_t p) -> uint64_t& { return cell(g, table[p / size] * size + p % size); };
        const uint64_t own = mix(position > 0 ? at(position - 1) : 1, static_cast<uint64_t>(token));
        const int32_t slot = group.slots[row.token_offset + i];
        if (slot >= 0) {
          cell(g, slot) = own;
        } else if (at(position) != own) {
          wrong(cat("position ", position, " of sequence ", row.seq, " is not written and holds something else"));
        }
        const CacheGroup& kept = model_.sched.groups[g];
        const int32_t first = kept.window > 0 ? std::max(0, position - kept.window + 1) : 0;
        for (int32_t p = first; p <= position; ++p) logits += mix(at(p), static_cast<uint64_t>(p));
      }
    }
  }
}

PositionLogprobs HashExecutor::score(uint64_t logits, int32_t token, int top) const {
  PositionLogprobs out;
  out.chosen = {token, logprob_of(logits, token), 1 + static_cast<int32_t>(logits % 7)};
  std::vector<int32_t> order(static_cast<size_t>(model_.vocab));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](int32_t t) { return logprob_of(logits, t); });
  for (int i = 0; i < top; ++i) out.top.push_back({order[i], logprob_of(logits, order[i]), i + 1});
  return out;
}

SampleOutput HashExecutor::sample(Sequence& s, uint64_t logits, int32_t position) {
  SampleOutput out;
  const SamplingParams& p = *s.params;
  if (model_.non_finite_in > 0 && logits % static_cast<uint64_t>(model_.non_finite_in) == 0) {
    out.status = SampleStatus::kNonFinite;
    return out;
  }
  if (p.beam_width > 0) {
    const int count = BeamSearch::candidates_per_beam(p.beam_width, p.stop_token_ids.size());
    out.candidates = score(logits, 0, count).top;
    return out;
  }
  uint64_t draw = mix(mix(logits, p.seed), mix(s.choice, static_cast<uint64_t>(position)));
  if (p.frequency_penalty != 0.0f)
    for (const int32_t token : s.history) draw = mix(draw, static_cast<uint64_t>(token));
  if (s.constraint) {
    std::vector<uint32_t> bits(static_cast<size_t>(model_.vocab + 31) / 32);
    s.constraint->fill_mask(bits);
    std::vector<int32_t> left;
    for (int32_t t = 0; t < model_.vocab; ++t)
      if (bits[static_cast<size_t>(t) / 32] >> (t % 32) & 1) left.push_back(t);
    if (left.empty()) {
      out.status = SampleStatus::kAllMasked;
      return out;
    }
    out.token = left[draw % left.size()];
  } else {
    out.token = static_cast<int32_t>(draw % static_cast<uint64_t>(model_.vocab));
  }
  if (p.logprobs >= 0 || p.best_of > p.n) out.logprobs = score(logits, out.token, std::max(p.logprobs, 0));
  return out;
}

void HashExecutor::draw(const StepPlan& plan, StepResult& result) {
  result.samples.clear();
  result.prompt_scores.clear();
  std::vector<int32_t>& drawn = drawn_[plan.step];
  drawn.clear();
  for (const SampleRow& row : plan.samples) {
    const auto it = sequences_.find(row.state);
    result.samples.push_back(it == sequences_.end() ? SampleOutput{}
                                                    : sample(it->second, logits_[row.token], row.position));
    drawn.push_back(std::max(result.samples.back().token, 0));
  }
  while (drawn_.size() > 2) drawn_.erase(drawn_.begin());
  for (const PlanRow& row : plan.rows) {
    const auto it = sequences_.find(row.seq);
    if (row.logits != LogitsWanted::kRange || it == sequences_.end()) continue;
    PromptScores scores{row.seq, row.first_pos + row.logits_first + 1, SampleStatus::kOk, {}};
    const std::vector<int32_t>& history = it->second.history;
    for (int32_t i = row.logits_first; i < row.n_tokens; ++i) {
      const auto next = static_cast<size_t>(row.first_pos + i + 1);
      if (next >= history.size()) break;
      scores.scores.push_back(score(logits_[row.token_offset + i], history[next], it->second.params->prompt_logprobs));
    }
    result.prompt_scores.push_back(std::move(scores));
  }
}

}  // namespace octavo
