#include "backend/cpu/kernels.h"

namespace octavo {

Isa detect_isa() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  if (avx2 && avx512) return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512Vnni;
  return avx2 ? Isa::kAvx2 : Isa::kBaseline;
}

const Kernels& kernels_for(Isa isa) {
  static const Kernels baseline{
      kRowKernelsBaseline,
      {kDenseBaseline, kNibbleBaseline, kByteBaseline, kScaledBaseline, kF8Baseline, kQuantizeBaseline},
      kPackBaseline,
      kKvKernelsBaseline,
      kAttentionKernelsBaseline,
      kScreenKernelsBaseline};
  static const Kernels avx2{kRowKernelsAvx2,
                            {kDenseAvx2, kNibbleAvx2, kByteAvx2, kScaledAvx2, kF8Avx2, kQuantizeAvx2},
                            kPackAvx2,
                            kKvKernelsAvx2,
                            kAttentionKernelsAvx2,
                            kScreenKernelsAvx2};
  static const Kernels avx512vnni{kRowKernelsAvx2,
                                  {kDenseAvx2, kNibbleAvx512, kByteAvx512, kScaledAvx512, kF8Avx2, kQuantizeAvx2},
                                  kPackAvx2,
                                  kKvKernelsAvx2,
                                  kAttentionKernelsAvx512,
                                  kScreenKernelsAvx2};
  static const Kernels avx512bf16 = [] {
    Kernels kernels = avx512vnni;
    kernels.linear.dense.bf16 = kBf16Avx512.tile;
    kernels.linear.byte.q8_0 = kShortByteAvx512;
    kernels.linear.byte.short_q8_0 = true;
    kernels.linear.quantize.to_bf16 = kBf16Avx512.round;
    kernels.attention.partitions[kv_type_index(DType::kF16)] = kAttentionBf16.f16;
    kernels.attention.partitions[kv_type_index(DType::kBF16)] = kAttentionBf16.bf16;
    return kernels;
  }();
  switch (isa) {
    case Isa::kBaseline:
      return baseline;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512Vnni:
      return avx512vnni;
    case Isa::kAvx512Bf16:
      return avx512bf16;
  }
  return baseline;
}

}  // namespace octavo
