#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/linear_inputs.h"
#include "backend/cpu/queue.h"
#include "ops/backend.h"
#include "ops/params.h"
#include "tensor/huge_pages.h"

namespace octavo::cpu {

std::unique_ptr<PackedWeight> pack(CpuQueue& queue, const PackKernels& kernels, HugePages& memory,
                                   const std::vector<MatrixSource>& parts);

void linear(CpuQueue& queue, const Kernels& kernels, const LinearParams& p);
// The product alone, with the inputs of p.
void multiply(CpuQueue& queue, const Kernels& kernels, const LinearParams& p, const LinearInputs& inputs);
// The beginning of what the worker is going to multiply after p.
Ahead next_weights(const ThreadPool& pool, const LinearParams& p, int worker);
void embed(CpuQueue& queue, const EmbedParams& p);

}  // namespace octavo::cpu
