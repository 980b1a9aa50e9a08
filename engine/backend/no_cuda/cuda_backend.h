#pragma once
#include <memory>
#include <string>

#include "ops/backend.h"

namespace octavo {

// This build has no CUDA backend: returns null and says why.
std::unique_ptr<Backend> make_cuda_backend(std::string* why_not);

}  // namespace octavo
