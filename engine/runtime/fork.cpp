// A second continuation of a sequence: a request whose prompt is what the sequence has said so far.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/format.h"
#include "base/reserve.h"
#include "runtime/step_loop.h"

namespace octavo {

void StepLoop::fork(RequestId id, const ForkRequest& fork, double arrival) {
  SubmitRequest submit;
  submit.params = fork.params;
  submit.channel = fork.channel;
  std::optional<Refusal> refusal;
  Reason why = failures_.persist([&] {
    refusal = start_of_fork(fork, submit);
    if (!refusal) enter(id, submit, arrival);
  });
  if (refusal) why = failures_.explain([&] { return std::move(*refusal); });
  if (why) return refuse(id, submit, why, arrival);
  *submit.next_choice += static_cast<uint32_t>(num_sequences(*submit.params));
}

std::optional<Refusal> StepLoop::start_of_fork(const ForkRequest& fork, SubmitRequest& submit) {
  std::span<const int32_t> history;
  size_t output_start = 0;
  const auto inherit = [&](const auto& from) {
    output_start = from.output_start;
    if (!submit.params) submit.params = from.params;
    submit.prefix_namespace = from.prefix_namespace;
    submit.shared_tokens = from.shared_tokens;
    submit.tenant = from.tenant;
    submit.priority = from.priority;
    submit.next_choice = from.next_choice;
  };
  const auto unknown = [&](const std::string& message) {
    return Refusal{ErrorCode::kInvalidArgument, "request", message, static_cast<int64_t>(fork.parent), 0};
  };

  const auto running = requests_.find(fork.parent);
  if (running != requests_.end()) {
    const Request& parent = *running->second;
    inherit(parent);
    if (parent.beams)
      return unknown(cat("request ", fork.parent, " searches with beams: it can be forked when it has ended"));
    if (fork.choice < 0 || fork.choice >= static_cast<int32_t>(parent.choices.size()))
      return Refusal{ErrorCode::kInvalidArgument, "choice",
                     cat("choice must be between 0 and ", parent.choices.size() - 1, ", got ", fork.choice),
                     fork.choice, static_cast<int64_t>(parent.choices.size()) - 1};
    const auto seq = std::ranges::find_if(parent.seqs, [&](SeqId s) { return owners_.find(s)->index == fork.choice; });
    if (seq == parent.seqs.end()) {
      history = parent.choices[fork.choice].history();
    } else {
      history = scheduler_.tokens(*seq);
      submit.source = *seq;
      // A branch that has not been sampled yet is no more than the prompt, which the first computes.
      if (history.empty()) history = scheduler_.tokens(submit.source = parent.seqs[0]);
    }
  } else if (const FinishedHistory* parent = histories_.find(fork.parent, fork.choice)) {
    inherit(*parent);
    history = parent->tokens;
  } else {
    return unknown(cat("request ", fork.parent, " has no choice ", fork.choice,
                       " that runs or is remembered: submit its tokens as a new prompt"));
  }

  const auto length = static_cast<int32_t>(history.size());
  const int32_t position = fork.position.value_or(length);
  if (position < 1 || position > length)
    return Refusal{ErrorCode::kInvalidArgument, "position",
                   cat("position must be between 1 and ", length, ", the tokens there are, got ", position), position,
                   length};
  submit.prompt.assign(history.begin(), history.begin() + position);
  submit.num_output = submit.prompt.size() - std::min(submit.prompt.size(), output_start);
  submit.first_choice = *submit.next_choice;
  RequestSpec spec;
  spec.seqs.resize(static_cast<size_t>(num_sequences(*submit.params)));
  spec.prompt = submit.prompt;
  spec.max_new_tokens = submit.params->max_tokens;
  return scheduler_.check(spec);
}

// Changes nothing when it throws.
void StepLoop::refuse(RequestId id, const SubmitRequest& submit, const Reason& why, double arrival) {
  std::vector<Delta> deltas(submit.params ? static_cast<size_t>(submit.params->n) : 1);
  for (size_t i = 0; i < deltas.size(); ++i) {
    deltas[i].id = id;
    deltas[i].choice = static_cast<int32_t>(i);
    deltas[i].finish = Finish::kError;
    deltas[i].error = why;
    deltas[i].prompt_tokens = static_cast<int32_t>(submit.prompt.size());
    deltas[i].times.arrival = arrival;
  }
  std::vector<Delta>& out = outgoing(submit.channel);
  reserve_more(out, deltas.size());
  std::ranges::move(deltas, std::back_inserter(out));
}

}  // namespace octavo
