#include "backend/cuda/platform.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kInternal;
  throw Error(code, "cuda", cat(what, ": ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ")"));
}

}  // namespace octavo::cuda
