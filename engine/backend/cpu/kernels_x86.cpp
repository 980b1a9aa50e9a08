#include "backend/cpu/kernels.h"

namespace octavo {

Isa detect_isa() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return avx2 ? Isa::kAvx2 : Isa::kBaseline;
}

const Kernels& kernels_for(Isa isa) {
  static const Kernels baseline{kRowKernelsBaseline,
                                {kDenseBaseline, kNibbleBaseline, kByteBaseline, kQuantizeBaseline},
                                kKvKernelsBaseline,
                                kAttentionKernelsBaseline};
  static const Kernels avx2{
      kRowKernelsAvx2, {kDenseAvx2, kNibbleAvx2, kByteAvx2, kQuantizeAvx2}, kKvKernelsAvx2, kAttentionKernelsAvx2};
  return isa == Isa::kAvx2 ? avx2 : baseline;
}

}  // namespace octavo
