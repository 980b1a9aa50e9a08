#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "ops/moe_params.h"

namespace octavo::cpu {

void route_experts(CpuQueue& queue, const RouteExpertsParams& p);
void group_experts(const GroupExpertsParams& p);
void combine_experts(CpuQueue& queue, const Kernels& kernels, const CombineExpertsParams& p);

}  // namespace octavo::cpu
