// Stands between the engine and mmap (linked with --wrap): what lies behind the last byte of a mapped file cannot be
// read. The rest of its last page is poisoned, the page after it is of no use to anybody.
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) static_cast<void>(address)
#define ASAN_UNPOISON_MEMORY_REGION(address, size) static_cast<void>(address)
#endif

extern "C" {

void* __real_mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void* address, size_t length);

static size_t pages(size_t length) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (length + page - 1) / page * page;
}

void* __wrap_mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
  if (fd < 0 || address) return __real_mmap(address, length, protection, flags, fd, offset);
  const size_t whole = pages(length);
  void* room = __real_mmap(nullptr, whole + pages(1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return room;
  void* mapped = __real_mmap(room, length, protection, flags | MAP_FIXED, fd, offset);
  if (mapped == MAP_FAILED) {
    __real_munmap(room, whole + pages(1));
  } else {
    ASAN_POISON_MEMORY_REGION(static_cast<char*>(mapped) + length, whole - length);
  }
  return mapped;
}

int __wrap_munmap(void* address, size_t length) {
  ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(address) + length, pages(length) - length);
  return __real_munmap(address, pages(length) + pages(1));
}
}
