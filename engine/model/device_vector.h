#pragma once
#include <cstring>
#include <memory>
#include <vector>

#include "ops/backend.h"

namespace octavo {

// A vector of f32 on the device (a norm's weights, biases); empty where the architecture has none.
class DeviceVector {
 public:
  DeviceVector() = default;
  DeviceVector(Backend& backend, Queue& queue, const std::vector<float>& values) : size_(values.size()) {
    if (values.empty()) return;
    Buffer host(size_ * sizeof(float));
    std::memcpy(host.data(), values.data(), host.size());
    memory_ = backend.adopt(queue, std::move(host));
  }

  const float* data() const { return memory_ ? memory_->as<float>() : nullptr; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  size_t size_ = 0;
};

}  // namespace octavo
