#pragma once
#include <cstddef>

#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "ops/backend.h"
#include "ops/params.h"

namespace octavo::cpu {

size_t attention_workspace(const WorkspaceLimits& limits, int threads);  // bytes
void attention(CpuQueue& queue, const Kernels& kernels, const AttentionParams& p);

}  // namespace octavo::cpu
