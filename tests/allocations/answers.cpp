#include "answers.h"

#include <algorithm>

#include "base/format.h"

using namespace octavo;

void Answers::expect(RequestId id, int choices, Kind kind) {
  kinds_[id] = kind;
  requests_[id].resize(static_cast<size_t>(choices));
  left_ += choices;
}

void Answers::complain(RequestId id, const std::string& what) { complaint_ += cat("request ", id, " ", what, "\n"); }

void Answers::take(std::vector<Delta> deltas) {
  for (const Delta& delta : deltas) {
    const auto it = requests_.find(delta.id);
    if (it == requests_.end() || delta.choice < 0 || delta.choice >= static_cast<int32_t>(it->second.size())) {
      complain(delta.id, "was not asked");
      continue;
    }
    Answer& answer = it->second[static_cast<size_t>(delta.choice)];
    if (answer.finish != Finish::kNone) complain(delta.id, "goes on after its end");
    answer.tokens.insert(answer.tokens.end(), delta.token_ids.begin(), delta.token_ids.end());
    answer.text += delta.text;
    for (const PositionLogprobs& p : delta.logprobs) answer.logprobs.push_back(p.chosen.logprob);
    for (const PositionLogprobs& p : delta.prompt_logprobs) answer.prompt_logprobs.push_back(p.chosen.logprob);
    if (delta.finish == Finish::kNone) continue;
    answer.finish = delta.finish;
    if (delta.finish == Finish::kError) {
      if (!delta.error) complain(delta.id, "failed without a cause");
      answer.error = delta.error ? delta.error->code : ErrorCode::kInternal;
    }
    --left_;
  }
}

void Answers::compare(const Answers& quiet, bool lone) {
  for (const auto& [id, choices] : requests_) {
    const auto& expected = quiet.requests_.at(id);
    if (!std::ranges::all_of(expected, &Answer::complete)) complain(id, "has no answer in the undisturbed run");
    if (kinds_[id] == Kind::kRanked && !std::ranges::all_of(choices, &Answer::complete)) continue;
    for (size_t i = 0; i < choices.size(); ++i) {
      const Answer& a = choices[i];
      if (a.complete()) {
        const bool same = a.tokens == expected[i].tokens && a.text == expected[i].text &&
                          a.logprobs == expected[i].logprobs && a.prompt_logprobs == expected[i].prompt_logprobs &&
                          a.finish == expected[i].finish;
        if (!same) complain(id, cat("says something else in choice ", i));
        continue;
      }
      const bool refused = a.error == ErrorCode::kInvalidArgument && kinds_[id] == Kind::kFork;
      if (a.failed() && a.error != ErrorCode::kOutOfMemory && !refused)
        complain(id, cat("failed for another reason: ", error_code_name(a.error)));
      const auto begins = [&](const Answer& whole) {
        return a.tokens.size() <= whole.tokens.size() &&
               std::equal(a.tokens.begin(), a.tokens.end(), whole.tokens.begin());
      };
      if (!a.tokens.empty() && std::ranges::none_of(expected, begins))
        complain(id, cat("begins differently in choice ", i));
    }
  }
  if (lone && failed_requests() > 1) complaint_ += cat(failed_requests(), " requests failed\n");
}

int Answers::failed_requests() const {
  const auto failed = [](const Answer& a) { return a.failed() && a.error == ErrorCode::kOutOfMemory; };
  return static_cast<int>(
      std::ranges::count_if(requests_, [&](const auto& r) { return std::ranges::any_of(r.second, failed); }));
}
