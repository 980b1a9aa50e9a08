#include "op_inputs.h"

#include <bit>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {
namespace {

constexpr size_t kSmallest = 4096;

}  // namespace

void OpInputs::begin(size_t bytes) {
  if (backend_.host_memory()) return;
  used_ = 0;
  const size_t size = std::bit_ceil(std::max(bytes, kSmallest));
  if (!device_ || device_->size() < size) {
    queue_.wait();  // nothing reads the old one any more
    device_.reset();
    device_ = backend_.allocate(size);
  }
  const auto free =
      std::ranges::find_if(staging_, [&](const auto& s) { return s->memory->size() >= bytes && s->moved->reached(); });
  if (free != staging_.end()) {
    staged_ = free->get();
    return;
  }
  auto made = std::make_unique<Staging>();
  made->memory = backend_.allocate_staging(size);
  made->moved = backend_.device_steps()->make_event();
  staged_ = staging_.emplace_back(std::move(made)).get();
}

void OpInputs::move() {
  if (backend_.host_memory() || used_ == 0) return;
  backend_.upload(queue_, device_->data(), staged_->memory->data(), used_);
  staged_->moved->record(queue_);
}

size_t OpInputs::take(size_t bytes) {
  const size_t at = used_;
  used_ += bytes;
  if (used_ > staged_->memory->size()) {
    throw Error(ErrorCode::kInternal, "inputs",
                cat("an op's integers need more than the ", staged_->memory->size(), " bytes they have"));
  }
  return at;
}

}  // namespace octavo
