#include "backend/cuda/check.h"

#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {

bool is_sticky(cudaError_t status) {
  switch (static_cast<int>(status)) {
    case 214:  // ECC error that could not be corrected
    case 219:  // MPS client's connection lost
    case 220:  // hardware error of NVLink
    case 700:  // illegal address
    case 702:  // the watchdog ended a kernel
    case 709:  // context destroyed
    case 710:  // assertion in a kernel
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failure
    case 721:  // error of a contained process
    case 999:  // unknown
      return true;
    default:
      return false;
  }
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // told here; the next call shall not find it
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory
                         : is_sticky(status)                 ? ErrorCode::kDeviceLost
                                                             : ErrorCode::kInternal;
  throw Error(code, "cuda", cat(what, ": ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ")"));
}

}  // namespace octavo::cuda
