#pragma once
#include "ops/backend.h"

namespace octavo {

// run_experts by the other ops, one expert after the other; offsets are in host memory.
inline void run_experts_in_turn(Backend& backend, Queue& queue, const RunExpertsParams& p) {
  for (size_t e = 0; e < p.table->experts.size(); ++e) {
    const int first = p.offsets[e], count = p.offsets[e + 1] - first;
    if (count == 0) continue;
    const ExpertMatrices& expert = p.table->experts[e];
    GatherRowsParams gather;
    gather.x = p.x;
    gather.ldx = gather.ldo = gather.dim = p.dim;
    gather.rows = p.tokens + first;
    gather.num_rows = count;
    gather.out = p.gathered;
    backend.gather_rows(queue, gather);
    LinearParams up;
    up.weight = expert.gate_up;
    up.x = p.gathered;
    up.ldx = p.dim;
    up.m = count;
    up.bias = expert.gate_up_bias;
    up.y = p.gate_up;
    up.ldy = expert.gate_up->n();
    backend.linear(queue, up);
    LinearParams down;
    down.weight = expert.down;
    down.x = up.y;
    down.ldx = up.ldy;
    down.m = count;
    down.prologue = p.gate;
    down.bias = expert.down_bias;
    down.y = p.out + int64_t{first} * p.dim;
    down.ldy = p.dim;
    backend.linear(queue, down);
  }
}

}  // namespace octavo
