#include "backend/cpu/vec8_avx2.h"
// The vector type comes first.
#include "backend/cpu/kv_kernels_impl.h"

namespace octavo {
const KvKernels kKvKernelsAvx2 = kKvKernels;
}  // namespace octavo
