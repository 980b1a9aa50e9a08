#include "tensor/huge_pages.h"

#include <algorithm>

#include "tensor/buffer.h"

namespace octavo {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kLargePiece = size_t{2} << 20;
#ifdef __SANITIZE_ADDRESS__  // which sees the ends of separate buffers only
constexpr size_t kMapping = 0;
#else
constexpr size_t kMapping = size_t{64} << 20;  // of address space: a huge page is there from its first use on
#endif

std::shared_ptr<std::byte> own_mapping(size_t bytes) {
  auto buffer = std::make_shared<Buffer>(bytes);
  return {buffer, buffer->data()};
}

}  // namespace

std::shared_ptr<std::byte> HugePages::take(size_t bytes) {
  if (bytes >= std::min(kLargePiece, kMapping)) return own_mapping(bytes);
  const std::lock_guard lock(mutex_);
  if (!mapping_ || used_ + bytes > kMapping) {
    mapping_ = own_mapping(kMapping);
    used_ = 0;
  }
  const std::shared_ptr<std::byte> piece(mapping_, mapping_.get() + used_);
  used_ += (bytes + kLine - 1) / kLine * kLine;
  return piece;
}

}  // namespace octavo
