#include "backend/cuda/emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#if !defined(__x86_64__)
#error "the CUDA emulator switches stacks on x86-64 only; build with OCTAVO_CUDA_EMULATOR=OFF"
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// void octavo_switch_stack(void** save, void* load): what a call preserves goes to the old stack, and comes from the
// new.
extern "C" void octavo_switch_stack(void** save, void* load) __attribute__((visibility("hidden")));
asm(R"(
.text
.p2align 4
.hidden octavo_switch_stack
.globl octavo_switch_stack
.type octavo_switch_stack, @function
octavo_switch_stack:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size octavo_switch_stack, . - octavo_switch_stack
)");

namespace octavo::emulator {
namespace {

thread_local Fiber* entering = nullptr;

}  // namespace

void Fiber::start(std::byte* stack, size_t bytes, void (*entry)(void*), void* argument) {
  stack_ = stack;
  stack_bytes_ = bytes;
  entry_ = entry;
  argument_ = argument;
  sanitizer_state_ = nullptr;
  // As octavo_switch_stack leaves a stack: six registers, then where to return to, aligned as after a call.
  auto* top = reinterpret_cast<uintptr_t*>(stack + bytes);
  *--top = 0;
  *--top = reinterpret_cast<uintptr_t>(&Fiber::begin);
  for (int i = 0; i < 6; ++i) *--top = 0;
  stack_pointer_ = top;
}

void Fiber::switch_to(Fiber& to, bool last) {
  to.came_from_ = this;
  entering = &to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &sanitizer_state_, to.stack_, to.stack_bytes_);
#endif
  octavo_switch_stack(&stack_pointer_, to.stack_pointer_);
  arrived();
}

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(sanitizer_state_, &bottom, &bytes);
  if (!came_from_->stack_) {  // a host thread's stack becomes known when it is left
    came_from_->stack_ = static_cast<std::byte*>(const_cast<void*>(bottom));
    came_from_->stack_bytes_ = bytes;
  }
#endif
}

void Fiber::begin() {
  Fiber* self = entering;
  self->arrived();
  self->entry_(self->argument_);
  std::abort();
}

FiberStacks::~FiberStacks() { release(); }

void FiberStacks::release() {
  if (memory_) munmap(memory_, count_ * kStride);
  memory_ = nullptr;
  count_ = 0;
}

void FiberStacks::reserve(size_t count) {
  if (count <= count_) return;
  release();
  void* memory =
      mmap(nullptr, count * kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  count_ = count;
  for (size_t i = 0; i < count; ++i) mprotect(memory_ + i * kStride, kGuard, PROT_NONE);
}

}  // namespace octavo::emulator
