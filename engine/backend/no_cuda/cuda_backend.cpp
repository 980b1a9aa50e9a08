#include "backend/no_cuda/cuda_backend.h"

namespace octavo {

std::unique_ptr<Backend> make_cuda_backend(std::string* why_not) {
  if (why_not) *why_not = "this build of octavo has no CUDA backend";
  return nullptr;
}

}  // namespace octavo
