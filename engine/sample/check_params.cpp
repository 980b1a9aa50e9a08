#include "sample/check_params.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/format.h"
#include "base/utf8.h"

namespace octavo {

namespace {

using Check = std::optional<Refusal>;

// For the integer fields of a Refusal; the message has the true value.
int64_t to_integer(double value) {
  return std::isnan(value) ? 0 : static_cast<int64_t>(std::clamp(value, -9e18, 9e18));
}

template <class T>
Refusal refuse(const char* param, T value, double limit, const std::string& message) {
  return {ErrorCode::kInvalidArgument, param, message, to_integer(static_cast<double>(value)), to_integer(limit)};
}

template <class T>
Check in_range(const char* param, T value, T low, T high) {
  if (value >= low && value <= high) return {};  // NaN is in no range
  return refuse(param, value, static_cast<double>(value < low ? low : high),
                cat(param, " must be between ", low, " and ", high, ", got ", value));
}

Check in_vocabulary(const char* param, int32_t token, int vocab) {
  if (token >= 0 && token < vocab) return {};
  return refuse(param, token, vocab - 1,
                cat(param, " names token id ", token, ", which is out of vocabulary: ids are 0 to ", vocab - 1));
}

Check in_vocabulary(const char* param, std::span<const int32_t> tokens, int vocab) {
  for (const int32_t token : tokens) {
    if (Check bad = in_vocabulary(param, token, vocab)) return bad;
  }
  return {};
}

Check at_most(const char* param, const char* what, size_t count, int64_t limit) {
  if (count <= static_cast<size_t>(limit)) return {};
  return refuse(param, count, static_cast<double>(limit),
                cat(param, " has ", count, " ", what, ", at most ", limit, " are allowed"));
}

Check check_numbers(const SamplingParams& p, int vocab) {
  if (Check bad = in_range("temperature", p.temperature, 0.0f, kMaxTemperature)) return bad;
  if (Check bad = in_range("top_p", p.top_p, 0.0f, 1.0f)) return bad;
  if (Check bad = in_range("top_k", p.top_k, -1, INT32_MAX)) return bad;
  if (Check bad = in_range("min_p", p.min_p, 0.0f, 1.0f)) return bad;
  if (Check bad = in_range("repetition_penalty", p.repetition_penalty, kMinRepetitionPenalty, kMaxRepetitionPenalty)) {
    return bad;
  }
  if (Check bad = in_range("presence_penalty", p.presence_penalty, -kMaxPenalty, kMaxPenalty)) return bad;
  if (Check bad = in_range("frequency_penalty", p.frequency_penalty, -kMaxPenalty, kMaxPenalty)) return bad;
  if (Check bad = in_range("max_tokens", p.max_tokens, 1, INT32_MAX)) return bad;
  if (Check bad = in_range("min_tokens", p.min_tokens, 0, p.max_tokens)) return bad;
  if (Check bad = in_range("logprobs", p.logprobs, -1, vocab)) return bad;
  return in_range("prompt_logprobs", p.prompt_logprobs, -1, vocab);
}

Check check_tokens(const SamplingParams& p, int vocab) {
  for (const auto& [token, bias] : p.logit_bias) {
    if (Check bad = in_vocabulary("logit_bias", token, vocab)) return bad;
    if (Check bad = in_range("logit_bias", bias, -kMaxLogitBias, kMaxLogitBias)) return bad;
  }
  if (Check bad = at_most("logit_bias", "entries", p.logit_bias.size(), vocab)) return bad;
  if (Check bad = at_most("allowed_token_ids", "ids", p.allowed_token_ids.size(), vocab)) return bad;
  if (Check bad = in_vocabulary("allowed_token_ids", p.allowed_token_ids, vocab)) return bad;
  if (Check bad = at_most("stop_token_ids", "ids", p.stop_token_ids.size(), vocab)) return bad;
  if (Check bad = in_vocabulary("stop_token_ids", p.stop_token_ids, vocab)) return bad;

  if (Check bad = at_most("bad_words", "entries", p.bad_words.size(), kMaxBadWords)) return bad;
  size_t tokens = 0;
  for (const std::vector<int32_t>& word : p.bad_words) {
    if (word.empty()) return refuse("bad_words", 0, 1, "bad_words has an entry without tokens, at least 1 is needed");
    if (Check bad = in_vocabulary("bad_words", word, vocab)) return bad;
    tokens += word.size();
  }
  return at_most("bad_words", "tokens", tokens, kMaxBadWordTokens);
}

Check check_pauses(const SamplingParams& p) {
  if (Check bad = at_most("stop_pauses", "pairs", p.stop_pauses.size(), kMaxStopPauses)) return bad;
  for (const auto& [opening, closing] : p.stop_pauses) {
    if (opening.empty()) return refuse("stop_pauses", 0, 1, "stop_pauses has an empty first mark");
    if (opening.size() + closing.size() > kMaxStopBytes) {
      return refuse("stop_pauses", opening.size() + closing.size(), kMaxStopBytes, "stop_pauses has marks too long");
    }
  }
  if (p.stop_paused && p.stop_pauses.empty()) {
    return refuse("stop_paused", 1, 0, "stop_paused needs a pair of marks in stop_pauses");
  }
  return {};
}

Check check_stops(const SamplingParams& p) {
  if (Check bad = check_pauses(p)) return bad;
  if (p.stop.empty()) return {};
  if (!p.detokenize) return refuse("stop", p.stop.size(), 0, "stop needs detokenize=True: stop strings match text");
  if (Check bad = at_most("stop", "strings", p.stop.size(), kMaxStopStrings)) return bad;
  size_t bytes = 0;
  for (const std::string& stop : p.stop) {
    if (stop.empty()) return refuse("stop", 0, 1, "stop has an empty string, at least 1 character is needed");
    if (!is_valid_utf8(stop)) return refuse("stop", 0, 0, "stop has a string that is not valid UTF-8");
    bytes += stop.size();
  }
  return at_most("stop", "bytes", bytes, kMaxStopBytes);
}

Check check_sequences(const SamplingParams& p) {
  if (Check bad = in_range("n", p.n, 1, INT32_MAX)) return bad;
  if (Check bad = in_range("beam_width", p.beam_width, 0, INT32_MAX)) return bad;
  if (p.beam_width > 0) return {};
  if (p.best_of == 0) return {};
  return in_range("best_of", p.best_of, p.n, INT32_MAX);
}

Check check_grammar(const SamplingParams& p, int vocab) {
  if (!p.grammar || p.grammar->vocab() == vocab) return {};
  return refuse("grammar", p.grammar->vocab(), vocab,
                cat("the grammar was compiled for another model: its vocabulary has ", p.grammar->vocab(),
                    " tokens, this one's ", vocab));
}

// A beam search takes the likeliest tokens by the model's own probabilities: what would change these, or end a text
// before its hypothesis is chosen, has no place in it.
Check check_beams(const SamplingParams& p, int vocab) {
  if (p.beam_width == 0) return {};
  const auto unfit = [](const char* param, bool set, auto value) -> Check {
    if (!set) return {};
    return refuse(param, value, 0, cat(param, " cannot be used with beam search, got ", value));
  };
  if (Check bad = unfit("best_of", p.best_of != 0, p.best_of)) return bad;
  if (Check bad = unfit("temperature", p.temperature != 0.0f && p.temperature != 1.0f, p.temperature)) return bad;
  if (Check bad = unfit("top_p", p.top_p != 1.0f, p.top_p)) return bad;
  if (Check bad = unfit("top_k", p.top_k > 0, p.top_k)) return bad;
  if (Check bad = unfit("min_p", p.min_p != 0.0f, p.min_p)) return bad;
  if (Check bad = unfit("repetition_penalty", p.repetition_penalty != 1.0f, p.repetition_penalty)) return bad;
  if (Check bad = unfit("presence_penalty", p.presence_penalty != 0.0f, p.presence_penalty)) return bad;
  if (Check bad = unfit("frequency_penalty", p.frequency_penalty != 0.0f, p.frequency_penalty)) return bad;
  if (Check bad = unfit("min_tokens", p.min_tokens != 0, p.min_tokens)) return bad;
  if (Check bad = unfit("logprobs", p.logprobs >= 0, p.logprobs)) return bad;
  if (Check bad = unfit("logit_bias", !p.logit_bias.empty(), p.logit_bias.size())) return bad;
  if (Check bad = unfit("allowed_token_ids", !p.allowed_token_ids.empty(), p.allowed_token_ids.size())) return bad;
  if (Check bad = unfit("bad_words", !p.bad_words.empty(), p.bad_words.size())) return bad;
  if (Check bad = unfit("structured_outputs", p.grammar != nullptr, 1)) return bad;
  if (Check bad = unfit("stop", !p.stop.empty(), p.stop.size())) return bad;
  if (Check bad = in_range("length_penalty", p.length_penalty, -kMaxLengthPenalty, kMaxLengthPenalty)) return bad;
  if (Check bad = in_range("n", p.n, 1, p.beam_width)) return bad;
  // Every beam needs a token to go on with, even after one position and without the end tokens.
  const auto most = static_cast<int32_t>(vocab - static_cast<int64_t>(p.stop_token_ids.size()));
  return in_range("beam_width", p.beam_width, 1, most);
}

}  // namespace

std::optional<Refusal> check_params(const SamplingParams& params, int vocab) {
  if (Check bad = check_numbers(params, vocab)) return bad;
  if (Check bad = check_sequences(params)) return bad;
  if (Check bad = check_tokens(params, vocab)) return bad;
  if (Check bad = check_grammar(params, vocab)) return bad;
  if (Check bad = check_beams(params, vocab)) return bad;
  return check_stops(params);
}

}  // namespace octavo
