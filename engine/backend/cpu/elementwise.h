#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "ops/params.h"

namespace octavo::cpu {

void rms_norm(CpuQueue& queue, const Kernels& kernels, const RmsNormParams& p);
void silu_mul(CpuQueue& queue, const Kernels& kernels, const SiluMulParams& p);
void residual_add(CpuQueue& queue, const Kernels& kernels, const ResidualAddParams& p);
void scale_logits(CpuQueue& queue, const Kernels& kernels, const ScaleLogitsParams& p);
void gather_rows(CpuQueue& queue, const GatherRowsParams& p);

}  // namespace octavo::cpu
