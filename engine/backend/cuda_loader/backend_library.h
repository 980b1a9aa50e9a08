#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/backend_plugin.h"

namespace octavo {

// Backends that are found at run time, each in a shared object beside the extension: "cuda", and for tests
// "cuda-emulated", the same sources on the host.
inline constexpr const char* kLoadableBackends[] = {"cuda", "cuda-emulated"};

struct BackendReport {
  std::string name;
  std::vector<DeviceInfo> devices;
  std::string why_not;  // empty: it can be used
};

// Never throws for a backend that is not there.
BackendReport report_backend(const std::string& name);

// Error(kUnsupported, "device", ...) says why it cannot be used.
std::unique_ptr<Backend> load_backend(const std::string& name, const BackendOptions& options);

}  // namespace octavo
