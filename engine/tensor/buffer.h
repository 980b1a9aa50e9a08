#pragma once
#include <cstddef>
#include <utility>

namespace octavo {

// Owning, zero-initialised memory for weights, cache and workspace: 64-byte aligned, and from 2 MiB on in
// its own mapping with huge pages asked for (on AVX2 machines they read up to twice as fast as 4 KiB pages).
// Pages are touched on first use only, so a large reservation costs address space, not memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);  // throws Error(kOutOfMemory, "memory", ...)
  ~Buffer();
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(Buffer& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    std::swap(mapped_, o.mapped_);
  }
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // bytes of the mapping, 0 when it came from operator new
};

}  // namespace octavo
