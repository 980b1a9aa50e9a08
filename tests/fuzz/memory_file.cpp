#include "memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace octavo::fuzz {

MemoryFile::MemoryFile(std::span<const uint8_t> bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
  const auto size = static_cast<ssize_t>(bytes.size());
  if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) != size) throw std::runtime_error("no file in memory");
}

MemoryFile::~MemoryFile() { close(fd_); }

std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(fd_); }

}  // namespace octavo::fuzz
