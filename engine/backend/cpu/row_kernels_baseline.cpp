#include "backend/cpu/vec8_baseline.h"
// The vector type comes first.
#include "backend/cpu/row_kernels_impl.h"

namespace octavo {
const RowKernels kRowKernelsBaseline = kRowKernels;
}  // namespace octavo
