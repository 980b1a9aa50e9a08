#include "backend/cpu/vec8_baseline.h"
// The vector type comes first.
#include "backend/cpu/kv_kernels_impl.h"

namespace octavo {
const KvKernels kKvKernelsBaseline = kKvKernels;
}  // namespace octavo
