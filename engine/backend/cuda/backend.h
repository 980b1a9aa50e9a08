#pragma once
#include <memory>

#include "ops/backend_plugin.h"

namespace octavo::cuda {

// name: "cuda", or "cuda-emulated".
std::unique_ptr<Backend> make_backend(const char* name, const BackendOptions& options);

}  // namespace octavo::cuda
