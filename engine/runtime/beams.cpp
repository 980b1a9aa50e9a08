// What a step means for the requests that search with beams.
#include <utility>

#include "base/reserve.h"
#include "runtime/step_loop.h"

namespace octavo {

// The first beam that goes on from a sequence keeps it; the others fork it and share its blocks. Where it throws, the
// request still has the sequences that it had.
void StepLoop::commit_beams(Request& request) {
  const bool goes_on = request.beams->advance(request.candidates);
  request.candidates.clear();
  if (!goes_on) {
    answer_with_beams(request);
    return;
  }
  const std::span<const NextBeam> beams = request.beams->beams();
  std::vector<SeqId> next;
  std::vector<bool> kept(request.seqs.size(), false);
  next.reserve(beams.size());
  reserve_more(outcome_.outcomes, beams.size());
  const SeqId first_child = next_seq_;
  try {
    for (const NextBeam& beam : beams) {
      const SeqId parent = request.seqs[beam.parent];
      next.push_back(kept[beam.parent] ? next_seq_++ : parent);
      kept[beam.parent] = true;
      if (next.back() == parent) continue;
      owners_.insert(next.back(), {&request, 0});
      executor_.fork_sequence(parent, next.back(), 0);
    }
  } catch (...) {
    for (SeqId child = first_child; child < next_seq_; ++child) drop_sequence(child);
    throw;
  }
  for (size_t i = 0; i < beams.size(); ++i) {
    owners_.find(next[i])->index = static_cast<int32_t>(i);
    outcome_.outcomes.push_back({request.seqs[beams[i].parent], next[i], beams[i].token, false});
  }
  for (size_t i = 0; i < kept.size(); ++i)
    if (!kept[i]) drop_sequence(request.seqs[i]);
  request.seqs = std::move(next);
}

// No outcome names its sequences: they end with the step.
void StepLoop::answer_with_beams(Request& request) {
  const auto prompt = scheduler_.tokens(request.seqs[0]).first(static_cast<size_t>(request.prompt_tokens));
  const std::vector<Hypothesis> found = request.beams->results();
  for (size_t i = 0; i < found.size(); ++i) {
    Choice& choice = request.choices[i];
    std::vector<int32_t> history(prompt.begin(), prompt.end());
    for (const int32_t token : found[i].tokens) {
      choice.push(token, {}, request.max_new_tokens, eos_);
      history.push_back(token);
    }
    choice.set_score(found[i].cumulative_logprob, found[i].score);
    choice.set_history(history);
    stats_.generation_tokens += static_cast<int64_t>(found[i].tokens.size());
  }
  for (const SeqId seq : request.seqs) drop_sequence(seq);
  request.seqs.clear();
  finish(request);
}

}  // namespace octavo
