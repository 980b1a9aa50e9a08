#pragma once
#include "backend/cuda/platform.h"
#include "ops/device_memory.h"

namespace octavo::cuda {

// On the GPU, zero-initialized. Error(kOutOfMemory, "memory", ...) says how much was asked for and how much is free.
class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(size_t bytes);
  ~GpuMemory() override;
};

// Host memory that the GPU reads and writes by itself.
class PinnedMemory final : public DeviceMemory {
 public:
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory() override;
};

}  // namespace octavo::cuda
