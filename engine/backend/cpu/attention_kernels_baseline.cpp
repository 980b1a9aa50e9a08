#include "backend/cpu/vec8_baseline.h"
// The vector type comes first.
#include "backend/cpu/attention_impl.h"

namespace octavo {
const AttentionKernels kAttentionKernelsBaseline = kAttentionKernels;
}  // namespace octavo
