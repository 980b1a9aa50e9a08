#include "backend/cpu/elementwise.h"

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

}  // namespace octavo::cpu
