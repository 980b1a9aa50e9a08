#include "backend/cpu/linear_kernels.h"

namespace octavo {

TileKernel LinearKernels::tile(WeightFormat format) const {
  switch (format) {
    case WeightFormat::kF32:
      return dense.f32;
    case WeightFormat::kF16:
      return dense.f16;
    case WeightFormat::kBF16:
      return dense.bf16;
    case WeightFormat::kQ4_0:
      return nibble.q4_0;
    case WeightFormat::kQ4_1:
      return nibble.q4_1;
    case WeightFormat::kQ5_0:
      return nibble.q5_0;
    case WeightFormat::kQ5_1:
      return nibble.q5_1;
    case WeightFormat::kQ8_0:
      return byte.q8_0;
  }
  return nullptr;
}

}  // namespace octavo
