#include "sample/sampler_state.h"

#include <algorithm>

namespace octavo {

namespace {
constexpr size_t kMinSlots = 64;
constexpr int32_t kReserveTokens = 1024;  // steps up to here allocate nothing
}  // namespace

SamplerState::SamplerState(const SamplingParams& params, std::span<const int32_t> prompt) {
  output_.reserve(std::min(params.max_tokens, kReserveTokens));
  const bool repetition = params.repetition_penalty != 1.0f;
  counting_ = repetition || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  if (!counting_) return;
  slots_.assign(kMinSlots, -1);
  if (repetition) {
    for (const int32_t token : prompt) count_of(token).in_prompt = true;
  }
  const size_t expected = counts_.size() + output_.capacity();
  counts_.reserve(expected);
  while (slots_.size() < 2 * expected) grow();
}

size_t SamplerState::slot_of(int32_t token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = (static_cast<uint32_t>(token) * 0x9E3779B1u >> 7) & mask;
  while (slots_[slot] >= 0 && counts_[slots_[slot]].token != token) slot = (slot + 1) & mask;
  return slot;
}

TokenCount& SamplerState::count_of(int32_t token) {
  size_t slot = slot_of(token);
  if (slots_[slot] < 0) {
    if (2 * (counts_.size() + 1) > slots_.size()) {
      grow();
      slot = slot_of(token);
    }
    slots_[slot] = static_cast<int32_t>(counts_.size());
    counts_.push_back({.token = token});
  }
  return counts_[slots_[slot]];
}

void SamplerState::grow() {
  slots_.assign(2 * slots_.size(), -1);
  for (size_t i = 0; i < counts_.size(); ++i) slots_[slot_of(counts_[i].token)] = static_cast<int32_t>(i);
}

void SamplerState::append(int32_t token) {
  output_.push_back(token);
  if (counting_) ++count_of(token).output;
}

void SamplerState::rollback(int tokens) {
  for (; tokens > 0 && !output_.empty(); --tokens) {
    if (counting_) --count_of(output_.back()).output;
    output_.pop_back();
  }
}

}  // namespace octavo
