#pragma once
#include <optional>

#include "base/errors.h"
#include "sample/params.h"

namespace octavo {

// Bounds of what one request may ask for, whoever submits it. A gateway may be stricter.
inline constexpr float kMaxTemperature = 100.0f;
inline constexpr float kMinRepetitionPenalty = 0.01f;
inline constexpr float kMaxRepetitionPenalty = 100.0f;
inline constexpr float kMaxPenalty = 2.0f;  // presence and frequency, either sign
inline constexpr float kMaxLogitBias = 100.0f;
inline constexpr float kMaxLengthPenalty = 100.0f;  // of beams, either sign
inline constexpr int kMaxStopStrings = 1024;
inline constexpr int kMaxStopPauses = 16;
inline constexpr int kMaxStopBytes = 1 << 16;  // all stop strings together
inline constexpr int kMaxBadWords = 4096;
inline constexpr int kMaxBadWordTokens = 1 << 16;  // all bad words together

// What is wrong with `params` for a model of `vocab` tokens: the parameter, its value, the limit. Empty: nothing.
std::optional<Refusal> check_params(const SamplingParams& params, int vocab);

}  // namespace octavo
