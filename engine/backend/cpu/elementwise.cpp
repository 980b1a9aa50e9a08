#include "backend/cpu/elementwise.h"

#include <cstring>

namespace octavo::cpu {

void rms_norm(CpuQueue& queue, const Kernels& kernels, const RmsNormParams& p) {
  queue.pool().run(p.rows, [&](int row, int) {
    kernels.rows.rms_norm(p.x + row * p.ldx, p.weight, p.eps, p.dim, p.out + row * p.ldo);
  });
}

void silu_mul(CpuQueue& queue, const Kernels& kernels, const SiluMulParams& p) {
  queue.pool().run(p.rows, [&](int row, int) {
    const float* x = p.x + row * p.ldx;
    kernels.rows.silu_mul(x, x + p.dim, p.dim, p.out + row * p.ldo);
  });
}

void gather_rows(CpuQueue& queue, const GatherRowsParams& p) {
  queue.pool().run(p.num_rows, [&](int row, int) {
    std::memcpy(p.out + row * p.ldo, p.x + p.rows[row] * p.ldx, static_cast<size_t>(p.dim) * sizeof(float));
  });
}

}  // namespace octavo::cpu
