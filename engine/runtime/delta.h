#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/errors.h"
#include "plan/step_plan.h"
#include "sample/logprobs.h"

namespace octavo {

enum class Finish : uint8_t { kNone, kStop, kLength, kAbort, kError };

// Seconds on CLOCK_MONOTONIC, the clock of Python's time.monotonic(). 0: has not happened.
struct RequestTimes {
  double arrival = 0;
  double scheduled = 0;
  double first_token = 0;
  double last_token = 0;
};

// What one choice of a request released in one step. A token travels with the delta that releases its last byte.
struct Delta {
  RequestId id = 0;
  int32_t choice = 0;
  std::vector<int32_t> token_ids;
  std::string text;                               // valid UTF-8
  std::vector<PositionLogprobs> logprobs;         // one per token when the request asked for them, else empty
  std::vector<PositionLogprobs> prompt_logprobs;  // once; entry i scores prompt token i + 1
  bool has_logprobs = false;
  bool has_prompt_logprobs = false;
  Finish finish = Finish::kNone;
  std::variant<std::monostate, int32_t, std::string> stop_reason;  // stop token id or stop string
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  RequestTimes times;
  std::optional<double> cumulative_logprob;  // with the finish, where sequences were ranked by it
  std::optional<double> score;               // with the finish of a beam search: what its hypotheses are ranked by
  std::shared_ptr<const Refusal> error;      // with kError
  bool sent = false;                         // its text is on its way to the reader (see DirectStream),
  std::string rest;                          // but for these bytes
};

}  // namespace octavo
