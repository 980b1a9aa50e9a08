#include "backend/cpu/vec8_avx2.h"
// The vector type comes first.
#include "backend/cpu/row_kernels_impl.h"

namespace octavo {
const RowKernels kRowKernelsAvx2 = kRowKernels;
}  // namespace octavo
