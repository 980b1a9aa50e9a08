#pragma once
#include <cstdint>

namespace octavo {

// Added to every norm: more than what squares lose that are too small for a float.
inline constexpr float kLeastNorm = 1e-20f;

// How far the outputs of eight rows are from those of their coarse copies, as norms (bf16, rounded up): of the error in
// the columns of heavy features, in the others, and of all that the row and its copy hold.
struct ScreenPanel {
  static constexpr int kRows = 8;
  uint16_t heavy[kRows], light[kRows], whole[kRows];
};

// What they meet: norms of the heavy features and of the others, and of all that rounding may have changed.
struct ScreenInput {
  float heavy, light, error;
};

struct ScreenKernels {
  float (*greatest)(const float* x, int n);  // NaN apart
  // Bit i: an output of panel i may be as great as `least`, or is not known to be smaller. At most 64 panels.
  uint64_t (*reaching)(const float* coarse, const ScreenPanel* panels, int count, const ScreenInput& input,
                       float least);
};

extern const ScreenKernels kScreenKernelsBaseline;
extern const ScreenKernels kScreenKernelsAvx2;

}  // namespace octavo
