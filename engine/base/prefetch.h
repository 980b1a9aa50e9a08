#pragma once
#include <cstddef>
#include <cstdint>

namespace octavo {

// Asks for memory that is used soon and does not wait: what lies far from the core for many objects comes at once,
// where each in turn would be waited for. Any address will do.
inline void prefetch(const void* from, size_t bytes) {
  constexpr uintptr_t kLine = 64;
  const auto begin = reinterpret_cast<uintptr_t>(from);
  for (uintptr_t line = begin / kLine * kLine; line < begin + bytes; line += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(line), 1);
  asm volatile("");  // GCC leaves calls out of functions that do nothing else
}

template <class T>
void prefetch(const T& object) {
  prefetch(&object, sizeof(T));
}

}  // namespace octavo
