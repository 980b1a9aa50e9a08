// libFuzzer's entry points, for builds with clang.
#include <algorithm>
#include <cstring>

#include "target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::fuzz::read_input({data, size});
  return 0;
}

// Every other input is made anew by the target, which knows the structure; the rest libFuzzer changes by coverage.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 2) return LLVMFuzzerMutate(data, size, max_size);
  octavo::fuzz::Random random(seed);
  const std::vector<uint8_t> made = octavo::fuzz::make_input(random);
  const size_t kept = std::min(made.size(), max_size);
  std::memcpy(data, made.data(), kept);
  return kept;
}
