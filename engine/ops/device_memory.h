#pragma once
#include <cstddef>

namespace octavo {

// Owning memory where a backend's kernels read and write it; the CPU's is plain memory. 64-byte aligned.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 protected:
  DeviceMemory(std::byte* data, size_t size) : data_(data), size_(size) {}

 private:
  std::byte* data_;
  size_t size_;
};

}  // namespace octavo
