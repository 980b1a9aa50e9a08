#include <cmath>

#include "backend/cpu/row_kernels.h"

namespace octavo {
namespace {

void rms_norm(const float* x, const float* weight, float eps, int dim, float* out) {
  float sum = 0.0f;
  for (int i = 0; i < dim; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(dim) + eps);
  for (int i = 0; i < dim; ++i) out[i] = x[i] * scale * weight[i];
}

void silu_mul(const float* gate, const float* up, int dim, float* out) {
  for (int i = 0; i < dim; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

}  // namespace

const RowKernels kRowKernelsBaseline{rms_norm, silu_mul};

}  // namespace octavo
