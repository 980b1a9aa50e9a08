#pragma once
#include <cstddef>
#include <memory>
#include <mutex>

namespace octavo {

// Memory for many buffers of which one alone would be too small for a huge page: they share mappings, one after the
// other. The matrices of a small model read up to a third faster than from pages of 4 KiB, at each of which the
// hardware stops fetching ahead. A mapping lives as long as a piece of it.
class HugePages {
 public:
  // Zero-initialised and 64-byte aligned; from 2 MiB on a mapping of its own. Error(kOutOfMemory, "memory", ...).
  // Thread-safe.
  std::shared_ptr<std::byte> take(size_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<std::byte> mapping_;
  size_t used_ = 0;
};

}  // namespace octavo
