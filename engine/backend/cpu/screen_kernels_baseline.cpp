#include "backend/cpu/vec8_baseline.h"
// The vector type comes first.
#include "backend/cpu/screen_kernels_impl.h"

namespace octavo {
const ScreenKernels kScreenKernelsBaseline = kScreenKernels;
}  // namespace octavo
