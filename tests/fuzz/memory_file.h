#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace octavo::fuzz {

// A file in memory that can be opened by its path.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const uint8_t> bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const;

 private:
  int fd_;
};

}  // namespace octavo::fuzz
