#include "backend/cpu/vec8_avx2.h"
// The vector type comes first.
#include "backend/cpu/attention_impl.h"

namespace octavo {
const AttentionKernels kAttentionKernelsAvx2 = kAttentionKernels;
}  // namespace octavo
