#pragma once
#include <bit>
#include <cstdint>

#include "sample/scratch.h"

namespace octavo {

// Candidates are keys whose descending order is: higher logit first, equal logits by lower id.
inline uint64_t order_key(float logit, int32_t token) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 counts as 0
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | ~static_cast<uint32_t>(token);
}
inline int32_t key_token(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }
inline float key_logit(uint64_t key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered & 0x80000000u ? ordered & 0x7FFFFFFFu : ~ordered);
}

// All of these read scratch.block_max, made by a scan of the same row. -inf is never a candidate.

int32_t argmax(const float* row, int n, float max, const SampleScratch& scratch);

// Keys of the logits >= threshold, by ascending id, in scratch.keys. Returns how many.
int collect_at_least(const float* row, int n, float threshold, SampleScratch& scratch);

// Keys of the k best in scratch.keys, the k-th last, the others in no order. Returns how many: fewer than k only where
// fewer are not masked. Not a sort: the k-th largest block maximum bounds the k-th largest logit from below, and only
// what lies above it is looked at.
int select_top(const float* row, int n, int k, SampleScratch& scratch);

// The key at which the mass of the best candidates, added up best first, reaches `need`; the last key where it never
// does. Reorders keys; weights: by token id.
uint64_t mass_cut(uint64_t* keys, int count, const uint32_t* weights, uint64_t need);

}  // namespace octavo
