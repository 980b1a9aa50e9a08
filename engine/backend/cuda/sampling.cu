#include "backend/cuda/kernels/sampling.cuh"
#include "backend/cuda/sampling.h"

namespace octavo::cuda {

void draw(const Launch& launch, const DrawParams& p) {
  if (p.num_rows == 0) return;
  cuda::launch(draw_kernel, dim3(static_cast<unsigned>(p.num_rows)), dim3(kDrawThreads), 0, launch.stream, p);
}

void take_tokens(const Launch& launch, const TakeTokensParams& p) {
  if (p.num_tokens == 0) return;
  constexpr int kThreads = 128;
  const auto blocks = static_cast<unsigned>((p.num_tokens + kThreads - 1) / kThreads);
  cuda::launch(take_tokens_kernel, dim3(blocks), dim3(kThreads), 0, launch.stream, p);
}

}  // namespace octavo::cuda
