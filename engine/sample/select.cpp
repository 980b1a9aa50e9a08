#include "sample/select.h"

#include <algorithm>
#include <cfloat>
#include <functional>

namespace octavo {

int32_t argmax(const float* row, int n, float max, const SampleScratch& scratch) {
  int block = 0;
  while (scratch.block_max[block] != max) ++block;
  int token = block * kScanBlock;
  while (row[token] != max) ++token;
  return token;
}

int collect_at_least(const float* row, int n, float threshold, SampleScratch& scratch) {
  threshold = std::max(threshold, -FLT_MAX);
  uint64_t* keys = scratch.keys.data();
  int count = 0;
  for (int block = 0; block < num_scan_blocks(n); ++block) {
    if (!(scratch.block_max[block] >= threshold)) continue;
    const int end = std::min(n, (block + 1) * kScanBlock);
    for (int i = block * kScanBlock; i < end; ++i) {
      if (row[i] >= threshold) keys[count++] = order_key(row[i], i);
    }
  }
  return count;
}

int select_top(const float* row, int n, int k, SampleScratch& scratch) {
  const int blocks = num_scan_blocks(n);
  float threshold = -FLT_MAX;
  if (k <= blocks) {
    std::copy_n(scratch.block_max.begin(), blocks, scratch.block_order.begin());
    const auto kth = scratch.block_order.begin() + (k - 1);
    std::nth_element(scratch.block_order.begin(), kth, scratch.block_order.begin() + blocks, std::greater<>());
    threshold = *kth;
  }
  const int count = collect_at_least(row, n, threshold, scratch);
  if (count == 0) return 0;
  const int kept = std::min(k, count);
  uint64_t* keys = scratch.keys.data();
  std::nth_element(keys, keys + (kept - 1), keys + count, std::greater<>());
  return kept;
}

uint64_t mass_cut(uint64_t* keys, int count, const uint32_t* weights, uint64_t need) {
  constexpr int kSmall = 32;
  uint64_t mass = 0;
  int first = 0;
  int last = count;
  while (last - first > kSmall) {  // halve the range that holds the cut
    const int middle = first + (last - first) / 2;
    std::nth_element(keys + first, keys + middle, keys + last, std::greater<>());
    uint64_t upper = 0;
    for (int i = first; i < middle; ++i) upper += weights[key_token(keys[i])];
    if (mass + upper >= need) {
      last = middle;
    } else {
      mass += upper;
      first = middle;
    }
  }
  std::sort(keys + first, keys + last, std::greater<>());
  for (int i = first; i < last; ++i) {
    mass += weights[key_token(keys[i])];
    if (mass >= need) return keys[i];
  }
  return keys[last - 1];
}

}  // namespace octavo
