#include "backend/cpu/vec16_avx512.h"
// The vector type comes first.
#include "backend/cpu/attention_impl.h"

namespace octavo {
const AttentionKernels kAttentionKernelsAvx512 = kAttentionKernels;
}  // namespace octavo
