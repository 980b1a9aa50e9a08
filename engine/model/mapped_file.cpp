#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat st{};
  if (file.fd < 0 || fstat(file.fd, &st) != 0) {
    throw Error(ErrorCode::kNotFound, path, cat("cannot open ", path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(st.st_mode)) throw Error(ErrorCode::kNotFound, path, cat(path, " is not a regular file"));
  if (st.st_size == 0) throw Error(ErrorCode::kCorruptFile, path, cat(path, " is empty"));
  size_ = static_cast<size_t>(st.st_size);
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (mapped == MAP_FAILED) {
    throw Error(ErrorCode::kOutOfMemory, path,
                cat("cannot map ", path, " (", size_, " bytes): ", std::strerror(errno)));
  }
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() { munmap(const_cast<std::byte*>(data_), size_); }

void MappedFile::prefetch(const std::byte* data, size_t size) const {
  advise(data, size, MADV_WILLNEED, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

// A fault maps a file's pages as the page cache holds them, up to a huge page at once: what was released before comes
// back with its neighbour. So whole huge pages are released.
void MappedFile::release(const std::byte* data, size_t size) const {
  advise(data, size, MADV_DONTNEED, size_t{2} << 20);
}

// Rounds outwards to whole pages of `page` bytes. The mapping is of a file and read-only, so dropping a neighbour's
// part of a shared page costs it a fault and nothing else.
void MappedFile::advise(const std::byte* data, size_t size, int advice, size_t page) const {
  if (size == 0) return;
  const auto first = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t begin = std::max(first, reinterpret_cast<uintptr_t>(data) / page * page);
  const uintptr_t end = std::min(first + size_, (reinterpret_cast<uintptr_t>(data) + size + page - 1) / page * page);
  madvise(reinterpret_cast<void*>(begin), end - begin, advice);  // advice only: failing changes nothing
}

}  // namespace octavo
