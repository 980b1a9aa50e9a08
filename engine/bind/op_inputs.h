#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace octavo {

// Integers that the host made for an op, where the op reads them: gathered in staging memory and moved by one copy. No
// host thread waits for the device, unless an op has more of them than any before. Where ops read host memory they stay
// where they are, and the caller keeps them until the op is done.
class OpInputs {
 public:
  OpInputs(Backend& backend, Queue& queue) : backend_(backend), queue_(queue) {}

  // What place() takes of begin().
  template <class T>
  static size_t room(size_t count) {
    return (count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
  }

  void begin(size_t bytes);
  template <class T>
  const T* place(std::span<const T> values) {
    if (backend_.host_memory()) return values.data();
    const size_t at = take(room<T>(values.size()));
    T* const end = std::ranges::copy(values, reinterpret_cast<T*>(staged_->memory->data() + at)).out;
    std::fill(reinterpret_cast<std::byte*>(end), staged_->memory->data() + used_, std::byte{});
    return reinterpret_cast<const T*>(device_->data() + at);
  }
  template <class T>
  const T* place(const std::vector<T>& values) {
    return place(std::span<const T>(values));
  }
  // What was placed is there for the ops that the queue is asked next.
  void move();

 private:
  static constexpr size_t kAlign = 64;

  struct Staging {
    std::unique_ptr<DeviceMemory> memory;
    std::unique_ptr<DeviceEvent> moved;
  };

  size_t take(size_t bytes);

  Backend& backend_;
  Queue& queue_;
  std::vector<std::unique_ptr<Staging>> staging_;
  Staging* staged_ = nullptr;
  std::unique_ptr<DeviceMemory> device_;  // the queue's order keeps one op's integers from the next one's
  size_t used_ = 0;
};

}  // namespace octavo
