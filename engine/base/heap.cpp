#include "base/heap.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace octavo {

#ifdef __GLIBC__
namespace {
// By default there may be eight per CPU, and each keeps what was free in it at the worst moment of its threads.
constexpr int kArenas = 4;
// Blocks of this size are mappings of their own, which end when they are freed. The default becomes the largest block
// that was ever freed, up to 32 MiB: from then on such blocks leave holes in the heaps.
constexpr int kMappedBytes = 256 << 10;
constexpr int kFreeBytesAtTheTop = 1 << 20;
}  // namespace

void limit_heap() {
  mallopt(M_ARENA_MAX, kArenas);
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  mallopt(M_TRIM_THRESHOLD, kFreeBytesAtTheTop);
}

void trim_heap() { malloc_trim(0); }
#else
void limit_heap() {}
void trim_heap() {}
#endif

}  // namespace octavo
