#include "sample/stages.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace octavo {

namespace {
constexpr float kMasked = -std::numeric_limits<float>::infinity();

bool has_penalty(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}
}  // namespace

void apply_logit_bias(std::span<float> row, const SamplingParams& params) {
  for (const auto& [token, bias] : params.logit_bias) row[token] += bias;
}

void apply_penalties(std::span<float> row, const SamplingParams& params, const SamplerState& state) {
  if (!has_penalty(params)) return;
  for (const TokenCount& count : state.counts()) {
    if (count.output == 0 && !count.in_prompt) continue;
    float& logit = row[count.token];
    logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count.output == 0) continue;
    logit -= params.frequency_penalty * static_cast<float>(count.output);
    logit -= params.presence_penalty;
  }
}

void apply_bad_words(std::span<float> row, const SamplingParams& params, std::span<const int32_t> output) {
  for (const std::vector<int32_t>& word : params.bad_words) {
    const size_t prefix = word.size() - 1;
    if (prefix > output.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, output.end() - static_cast<ptrdiff_t>(prefix))) {
      row[word.back()] = kMasked;
    }
  }
}

void apply_allowed_tokens(std::span<float> row, const SamplingParams& params, std::span<float> kept) {
  const std::vector<int32_t>& allowed = params.allowed_token_ids;
  if (allowed.empty()) return;
  for (size_t i = 0; i < allowed.size(); ++i) kept[i] = row[allowed[i]];
  std::fill(row.begin(), row.end(), kMasked);
  for (size_t i = 0; i < allowed.size(); ++i) row[allowed[i]] = kept[i];
}

void apply_min_tokens(std::span<float> row, const SamplingParams& params, int32_t output_length) {
  if (output_length >= params.min_tokens) return;
  for (const int32_t token : params.stop_token_ids) row[token] = kMasked;
}

void apply_mask(std::span<float> row, const uint32_t* bits) {
  for (size_t first = 0; first < row.size(); first += 32) {
    const size_t count = std::min<size_t>(32, row.size() - first);
    const uint32_t inside = count == 32 ? 0xFFFFFFFFu : (1u << count) - 1;
    uint32_t masked = ~bits[first / 32] & inside;
    if (masked == inside) {  // most words of a narrow mask
      std::fill_n(row.begin() + static_cast<std::ptrdiff_t>(first), count, kMasked);
      continue;
    }
    for (; masked != 0; masked &= masked - 1) row[first + static_cast<size_t>(std::countr_zero(masked))] = kMasked;
  }
}

bool changes_logits(const SamplingParams& params, const SamplerState& state) {
  return !params.logit_bias.empty() || has_penalty(params) || !params.bad_words.empty() ||
         !params.allowed_token_ids.empty() ||
         (state.output_length() < params.min_tokens && !params.stop_token_ids.empty());
}

}  // namespace octavo
