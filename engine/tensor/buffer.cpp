#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kGranule = size_t{64} << 10;  // a multiple of every small page size in use
constexpr std::align_val_t kAlign{64};

[[noreturn]] void out_of_memory(size_t bytes) {
  throw Error(ErrorCode::kOutOfMemory, "memory", cat("cannot allocate ", bytes, " bytes"));
}
}  // namespace

Buffer::Buffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes < kHugePage) {
    data_ = static_cast<std::byte*>(::operator new(bytes, kAlign, std::nothrow));
    if (!data_) out_of_memory(bytes);
    std::memset(data_, 0, bytes);
    return;
  }
  // The mapping ends soon after its bytes, so that a tail never costs a whole huge page.
  const size_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
  if (rounded < bytes) out_of_memory(bytes);
  // One huge page more than needed, trimmed to the alignment.
  void* raw =
      mmap(nullptr, rounded + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) out_of_memory(bytes);
  auto* begin = static_cast<std::byte*>(raw);
  const size_t lead = (kHugePage - reinterpret_cast<size_t>(begin) % kHugePage) % kHugePage;
  if (lead) munmap(begin, lead);
  if (kHugePage - lead) munmap(begin + lead + rounded, kHugePage - lead);
  data_ = begin + lead;
  mapped_ = rounded;
  madvise(data_, rounded, MADV_HUGEPAGE);
}

Buffer::~Buffer() {
  if (!data_) return;
  if (mapped_) {
    munmap(data_, mapped_);
  } else {
    ::operator delete(data_, kAlign);
  }
}

}  // namespace octavo
