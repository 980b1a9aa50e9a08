#include "backend/cpu/pack_kernels.h"

namespace octavo {

using enum WeightFormat;

const PackKernels kPackBaseline{{quantize_row<kF32, kQ8_0>, quantize_row<kF16, kQ8_0>, quantize_row<kBF16, kQ8_0>},
                                {quantize_row<kF32, kQ4_1>, quantize_row<kF16, kQ4_1>, quantize_row<kBF16, kQ4_1>},
                                {}};

}  // namespace octavo
