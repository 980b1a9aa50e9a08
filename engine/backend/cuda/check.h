#pragma once
#include "backend/cuda/platform.h"

namespace octavo::cuda {

// The device's context is gone: no later call can succeed in this process.
bool is_sticky(cudaError_t status);

}  // namespace octavo::cuda
