#pragma once
// Included by one file per instruction set, after its vec8 header.
#include "backend/cpu/screen_kernels.h"

namespace octavo {
namespace {

float greatest(const float* x, int n) {
  Vec best[4];
  for (Vec& b : best) b = splat(-__builtin_inff());
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) best[j] = max(load(x + i + kLanes * j), best[j]);
  }
  for (; i + kLanes <= n; i += kLanes) best[0] = max(load(x + i), best[0]);
  float most = max_lanes(max(max(best[0], best[1]), max(best[2], best[3])));
  for (; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

uint64_t reaching(const float* coarse, const ScreenPanel* panels, int count, const ScreenInput& input, float least) {
  uint64_t found = 0;
  for (int i = 0; i < count; ++i) {
    const auto norms = [](const uint16_t* from) { return load(reinterpret_cast<const BF16*>(from)); };
    Vec bound = load(coarse + ScreenPanel::kRows * i);
    bound = fma(splat(input.heavy), norms(panels[i].heavy), bound);
    bound = fma(splat(input.light), norms(panels[i].light), bound);
    bound = fma(splat(input.error), norms(panels[i].whole), bound);
    found |= static_cast<uint64_t>(!all_lanes(bound < splat(least))) << i;
  }
  return found;
}

constexpr ScreenKernels kScreenKernels{greatest, reaching};

}  // namespace
}  // namespace octavo
