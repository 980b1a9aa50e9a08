// A second continuation of a sequence: a request whose prompt is what the sequence has said so far.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "runtime/step_loop.h"

namespace octavo {

void StepLoop::fork(RequestId id, ForkRequest fork, double arrival) {
  SubmitRequest submit;
  const std::optional<Refusal> refusal = start_of_fork(fork, submit);
  if (refusal) {
    const int32_t n = submit.params ? submit.params->n : 1;
    refuse(id, submit, n, *refusal, arrival);
    return;
  }
  add(id, std::move(submit), arrival);
}

std::optional<Refusal> StepLoop::start_of_fork(const ForkRequest& fork, SubmitRequest& submit) {
  submit.params = fork.params;
  submit.channel = fork.channel;
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
  const int32_t width = num_sequences(*submit.params);
  RequestSpec spec;
  spec.seqs.resize(static_cast<size_t>(width));
  spec.prompt = submit.prompt;
  spec.max_new_tokens = submit.params->max_tokens;
  if (auto refusal = scheduler_.check(spec)) return refusal;
  *submit.next_choice += static_cast<uint32_t>(width);
  return std::nullopt;
}

void StepLoop::refuse(RequestId id, const SubmitRequest& submit, int32_t n, const Refusal& why, double arrival) {
  for (int32_t i = 0; i < n; ++i) {
    Delta delta;
    delta.id = id;
    delta.choice = i;
    delta.finish = Finish::kError;
    delta.error = std::make_shared<const Refusal>(why);
    delta.prompt_tokens = static_cast<int32_t>(submit.prompt.size());
    delta.times.arrival = arrival;
    outgoing(submit.channel).push_back(std::move(delta));
  }
}

}  // namespace octavo
