#pragma once
#include <vector>

#include "backend/cuda/launches.h"
#include "ops/backend_plugin.h"

namespace octavo::cuda {

// The GPUs that can run the kernels. Error(kUnsupported, "device", ...) says why there is none: no driver, an old one,
// no GPU, an old one.
std::vector<DeviceInfo> list_devices();

// Makes `ordinal` the calling thread's device.
DeviceProperties open_device(int ordinal);

}  // namespace octavo::cuda
