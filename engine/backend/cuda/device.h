#pragma once
#include <vector>

#include "backend/cuda/launches.h"
#include "ops/backend_plugin.h"

namespace octavo::cuda {

// The GPUs that can run the kernels. Error(kUnsupported, "device", ...) says why there is none: no driver, an old one,
// no GPU, an old one.
std::vector<DeviceInfo> list_devices();

// Error(kUnsupported, "device", ...) unless the kernels run on it.
DeviceProperties open_device(int ordinal);

// The calling thread's device is another one meanwhile.
class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
};

}  // namespace octavo::cuda
