#include "backend/cpu/vec8_avx2.h"
// The vector type comes first.
#include "backend/cpu/screen_kernels_impl.h"

namespace octavo {
const ScreenKernels kScreenKernelsAvx2 = kScreenKernels;
}  // namespace octavo
