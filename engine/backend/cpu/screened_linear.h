#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "ops/params.h"

namespace octavo::cpu {

// The greatest outputs of each row (LinearParams::screen), bit for bit as linear() computes them: the coarse copy
// first, then the rows that could still win by the bound on their error.
void screened_linear(CpuQueue& queue, const Kernels& kernels, const LinearParams& p);

}  // namespace octavo::cpu
