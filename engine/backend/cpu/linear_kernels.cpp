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
    case WeightFormat::kQ2_K:
      return scaled.q2_k;
    case WeightFormat::kQ3_K:
      return scaled.q3_k;
    case WeightFormat::kQ4_K:
      return scaled.q4_k;
    case WeightFormat::kQ5_K:
      return scaled.q5_k;
    case WeightFormat::kQ6_K:
      return scaled.q6_k;
    case WeightFormat::kIQ4_NL:
      return scaled.iq4_nl;
    case WeightFormat::kIQ4_XS:
      return scaled.iq4_xs;
    case WeightFormat::kMXFP4:
      return scaled.mxfp4;
    case WeightFormat::kInt4x32:
      return scaled.int4x32;
    case WeightFormat::kInt4x128:
      return scaled.int4x128;
    case WeightFormat::kInt8x32:
      return byte.int8x32;
    case WeightFormat::kInt8x128:
      return byte.int8x128;
    case WeightFormat::kF8x32:
      return f8.f8x32;
    case WeightFormat::kF8x128:
      return f8.f8x128;
  }
  return nullptr;
}

}  // namespace octavo
