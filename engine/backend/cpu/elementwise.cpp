#include "backend/cpu/elementwise.h"

#include <algorithm>
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

void residual_add(CpuQueue& queue, const Kernels& kernels, const ResidualAddParams& p) {
  queue.pool().run(p.rows, [&](int row, int) {
    float* y = p.y + row * p.ldy;
    if (p.norm_weight) kernels.rows.rms_norm(y, p.norm_weight, p.eps, p.dim, y);
    kernels.rows.add_scaled(p.x + row * p.ldx, y, p.scale, p.dim);
  });
}

void scale_logits(CpuQueue& queue, const Kernels& kernels, const ScaleLogitsParams& p) {
  constexpr int kTile = 4096;
  const int tiles = (p.dim + kTile - 1) / kTile;
  queue.pool().run(p.rows * tiles, [&](int job, int) {
    const int first = job % tiles * kTile;
    float* x = p.x + static_cast<int64_t>(job / tiles) * p.dim + first;
    kernels.rows.scale_and_cap(x, p.scale, p.softcap, std::min(kTile, p.dim - first));
  });
}

void gather_rows(CpuQueue& queue, const GatherRowsParams& p) {
  queue.pool().run(p.num_rows, [&](int row, int) {
    std::memcpy(p.out + row * p.ldo, p.x + p.rows[row] * p.ldx, static_cast<size_t>(p.dim) * sizeof(float));
  });
}

}  // namespace octavo::cpu
