#include "answers.h"

#include <algorithm>

using namespace octavo;

void Spoken::add(const Delta& delta) {
  tokens.insert(tokens.end(), delta.token_ids.begin(), delta.token_ids.end());
  for (const PositionLogprobs& position : delta.logprobs) logprobs.push_back(position.chosen.logprob);
  text += delta.text;
  finish = delta.finish;
}

bool Spoken::begins(const Spoken& whole) const {
  return tokens.size() <= whole.tokens.size() && std::equal(tokens.begin(), tokens.end(), whole.tokens.begin()) &&
         logprobs.size() <= whole.logprobs.size() &&
         std::equal(logprobs.begin(), logprobs.end(), whole.logprobs.begin());
}

bool ended(const Answer& answer, int choices) {
  const auto over = [](const auto& entry) { return entry.second.finish != Finish::kNone; };
  return static_cast<int>(answer.size()) == choices && std::ranges::all_of(answer, over);
}
