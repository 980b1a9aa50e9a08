#include "runtime/sequence_states.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "sample/beam.h"

namespace octavo {

int SampledSequence::num_best() const {
  if (params->beam_width > 0) return BeamSearch::candidates_per_beam(params->beam_width, params->stop_token_ids.size());
  return scored ? std::max(params->logprobs, 0) : 0;
}

void SequenceStates::add(SeqId seq, std::shared_ptr<const SamplingParams> params, std::span<const int32_t> history,
                         size_t num_output, uint32_t choice) {
  auto added = std::make_unique<SampledSequence>();
  SampledSequence& s = *added;
  s.state = SamplerState(*params, history.first(history.size() - num_output));
  for (const int32_t token : history.last(num_output)) s.state.append(token);
  s.prompt_size = static_cast<int32_t>(history.size() - num_output);
  s.choice = choice;
  if (params->prompt_logprobs >= 0) s.prompt.assign(history.begin(), history.end());
  s.scored = params->logprobs >= 0 || params->best_of > params->n;
  if (params->grammar) {
    s.mask.resize(static_cast<size_t>(vocab_ + 31) / 32);
    try {
      s.constraint = params->grammar->start();
      for (const int32_t token : history.last(num_output)) s.constraint->accept(token);
    } catch (const Error& e) {
      s.grammar_error = e.what();
    }
  }
  s.params = std::move(params);
  sequences_.insert(seq, std::move(added));
}

void SequenceStates::fork(SeqId parent, SeqId child, uint32_t choice) {
  const SampledSequence& from = *find(parent);
  auto added = std::make_unique<SampledSequence>();
  SampledSequence& copy = *added;
  copy.params = from.params;
  copy.state = from.state;
  copy.prompt_size = from.prompt_size;
  copy.choice = choice;
  copy.scored = from.scored;
  copy.prompt = from.prompt;
  if (from.constraint) copy.constraint = from.constraint->fork();
  copy.mask.resize(from.mask.size());
  copy.grammar_error = from.grammar_error;
  sequences_.insert(child, std::move(added));
}

bool SequenceStates::accept(SeqId seq, int32_t token) {
  SampledSequence& s = *find(seq);
  s.state.append(token);
  if (!s.constraint) return false;
  s.masked = false;
  s.constraint->accept(token);
  return s.constraint->done();
}

void SequenceStates::list_forced(SeqId seq, std::vector<int32_t>& tokens) {
  const SampledSequence& s = *find(seq);
  if (s.constraint) s.constraint->list_forced(tokens);
}

SampledSequence* SequenceStates::find(SeqId seq) {
  const std::unique_ptr<SampledSequence>* found = sequences_.find(seq);
  return found ? found->get() : nullptr;
}

const std::vector<SampledSequence*>& SequenceStates::start(const StepPlan& plan) {
  sampled_.clear();
  jobs_.clear();
  for (const SampleRow& row : plan.samples) {
    SampledSequence* s = find(row.state);
    sampled_.push_back(s);
    if (s == nullptr || !s->constraint || s->masked || !s->grammar_error.empty()) continue;
    jobs_.push_back({s->constraint.get(), &s->mask, &s->grammar_error, &s->mask_late});
  }
  masks_.start(jobs_);
  // Only now: where memory did not suffice for all of that, none counts as masked.
  for (SampledSequence* s : sampled_) {
    if (s != nullptr && s->constraint) s->masked = true;
  }
  return sampled_;
}

void SequenceStates::forget_devices() {
  sequences_.for_each([](SeqId, const std::unique_ptr<SampledSequence>& s) { s->on_device.reset(); });
}

}  // namespace octavo
