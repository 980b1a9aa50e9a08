// What a step means for the requests that search with beams.
#include <utility>

#include "runtime/step_loop.h"

namespace octavo {

// The first beam that goes on from a sequence keeps it; the others fork it and share its blocks.
void StepLoop::commit_beams(Request& request) {
  const bool goes_on = request.beams->advance(request.candidates);
  request.candidates.clear();
  if (!goes_on) {
    answer_with_beams(request);
    return;
  }
  const std::vector<SeqId> before = std::exchange(request.seqs, {});
  std::vector<bool> kept(before.size(), false);
  for (const NextBeam& beam : request.beams->beams()) {
    const SeqId parent = before[beam.parent];
    SeqId child = parent;
    if (kept[beam.parent]) {
      child = next_seq_++;
      executor_.fork_sequence(parent, child, 0);
    }
    kept[beam.parent] = true;
    owners_.insert(child, {&request, static_cast<int32_t>(request.seqs.size())});
    request.seqs.push_back(child);
    outcome_.outcomes.push_back({parent, child, beam.token, false});
  }
  for (size_t i = 0; i < before.size(); ++i)
    if (!kept[i]) drop_sequence(before[i]);
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
  tell(request);
  forget(request);
}

}  // namespace octavo
