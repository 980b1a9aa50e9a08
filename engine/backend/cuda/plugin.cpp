#include "backend/cuda/backend.h"
#include "backend/cuda/device.h"
#include "ops/backend_plugin.h"

#pragma GCC visibility push(default)
extern "C" const octavo::BackendPlugin* octavo_backend_plugin() {
  static constexpr octavo::BackendPlugin kPlugin{
      OCTAVO_BACKEND_ABI,
      &octavo::cuda::list_devices,
      [](const octavo::BackendOptions& options) { return octavo::cuda::make_backend(OCTAVO_BACKEND_NAME, options); },
  };
  return &kPlugin;
}
#pragma GCC visibility pop
