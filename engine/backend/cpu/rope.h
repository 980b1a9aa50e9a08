#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "ops/params.h"

namespace octavo::cpu {

void rope_write(CpuQueue& queue, const Kernels& kernels, const RopeWriteParams& p);
void copy_blocks(CpuQueue& queue, const CopyBlocksParams& p);

}  // namespace octavo::cpu
