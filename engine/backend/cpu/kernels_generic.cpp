#include "backend/cpu/kernels.h"

namespace octavo {

Isa detect_isa() { return Isa::kBaseline; }

const Kernels& kernels_for(Isa) {
  static const Kernels baseline{
      kRowKernelsBaseline,
      {kDenseBaseline, kNibbleBaseline, kByteBaseline, kScaledBaseline, kF8Baseline, kQuantizeBaseline},
      kPackBaseline,
      kKvKernelsBaseline,
      kAttentionKernelsBaseline,
      kScreenKernelsBaseline};
  return baseline;
}

}  // namespace octavo
