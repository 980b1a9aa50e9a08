#include "failing_new.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int> struck{0};  // the thread, 0: none
std::atomic<int64_t> count{0};
int64_t first_failure = 0;
int64_t failures = 0;

bool fails() {
  const int tid = struck.load(std::memory_order_acquire);
  if (tid == 0) return false;
  thread_local const int own = gettid();
  if (own != tid) return false;
  const int64_t n = count.fetch_add(1, std::memory_order_relaxed) - first_failure;
  return n >= 0 && n < failures;
}

void* checked(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void fail_allocations(int tid, int64_t first, int64_t times) {
  first_failure = first;
  failures = times;
  count = 0;
  struck.store(tid, std::memory_order_release);
}

int64_t stop_failing() {
  struck = 0;
  return count;
}

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(size > 0 ? size : 1);
}

void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  const auto a = static_cast<std::size_t>(alignment);
  return fails() ? nullptr : std::aligned_alloc(a, (size + a - 1) / a * a);
}

void* operator new(std::size_t size) { return checked(operator new(size, std::nothrow)); }

void* operator new(std::size_t size, std::align_val_t alignment) {
  return checked(operator new(size, alignment, std::nothrow));
}

void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
