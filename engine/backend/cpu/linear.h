#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "ops/backend.h"
#include "ops/params.h"
#include "tensor/huge_pages.h"

namespace octavo::cpu {

std::unique_ptr<PackedWeight> pack(CpuQueue& queue, const PackKernels& kernels, HugePages& memory,
                                   const std::vector<MatrixSource>& parts);

size_t linear_workspace(const WorkspaceLimits& limits, int threads);  // bytes
void linear(CpuQueue& queue, const Kernels& kernels, const LinearParams& p);
void embed(CpuQueue& queue, const EmbedParams& p);

}  // namespace octavo::cpu
