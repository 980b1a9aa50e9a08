#pragma once
#include <memory>
#include <string>

#include "ops/backend.h"

namespace octavo {

// The CPU backend for `isa` ("baseline", "avx2", "avx512vnni", "avx512bf16"), by default the best this machine has.
std::unique_ptr<Backend> make_cpu_backend(const std::string& isa = "");

}  // namespace octavo
