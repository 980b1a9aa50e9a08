#pragma once
#include <cstddef>

namespace octavo::emulator {

// A point of execution with a stack of its own. Fibers of one host thread hand the processor to each other by name.
class Fiber {
 public:
  Fiber() = default;  // the host thread itself
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next switch_to(this) call entry(argument) on the given stack; entry must not return.
  void start(std::byte* stack, size_t bytes, void (*entry)(void*), void* argument);
  // Continues `to` where it left off; returns when something switches back. last: this fiber is not continued again.
  void switch_to(Fiber& to, bool last = false);

 private:
  static void begin();
  void arrived();

  void* stack_pointer_ = nullptr;
  std::byte* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  void* sanitizer_state_ = nullptr;
  Fiber* came_from_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
};

// Stacks of equal size, each above a page that faults when it overflows.
class FiberStacks {
 public:
  static constexpr size_t kBytes = 256 << 10;

  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  void reserve(size_t count);
  std::byte* stack(size_t index) const { return memory_ + index * kStride + kGuard; }

 private:
  static constexpr size_t kGuard = 4096;
  static constexpr size_t kStride = kBytes + kGuard;
  void release();

  std::byte* memory_ = nullptr;
  size_t count_ = 0;
};

}  // namespace octavo::emulator
