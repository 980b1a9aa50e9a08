#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace octavo {

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  std::string isa;   // "sm_90"
  size_t memory_bytes = 0;
  size_t free_bytes = 0;
};

struct BackendOptions {
  int device = 0;
  // Products may take another algorithm for another number of rows: results then depend on the company.
  bool fast = false;
};

// How a backend in a shared object of its own presents itself. Objects of C++ pass between the two, so both must be
// built from the same headers by the same compiler: `abi` tells before anything else is touched.
struct BackendPlugin {
  const char* abi;
  // Error(kUnsupported, ...) says why there is none.
  std::vector<DeviceInfo> (*devices)();
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
};

inline constexpr const char* kBackendPluginSymbol = "octavo_backend_plugin";
using BackendPluginFunction = const BackendPlugin* (*)();

}  // namespace octavo
