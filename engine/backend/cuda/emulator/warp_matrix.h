#pragma once
// What mma.h offers, on the host: matrix fragments and asynchronous copies of a warp.
#include <cstdint>

#include "backend/cuda/emulator/block.h"

namespace octavo::emulator {

struct Fragments {
  uint32_t a[4];
  uint32_t b[2];
  float d[4];
};
struct Accumulators {
  float d[4];
};
struct Registers {
  uint32_t r[4];
};

enum class Element : uint8_t { kF16, kBF16 };
Accumulators mma_m16n8k16(const Fragments& fragments, Element element, Site site);
// `count` matrices of 8 x 8 16-bit elements; lane 8 i + j names row j of matrix i.
Registers load_matrices(const void* row, int count, bool transposed, Site site);

}  // namespace octavo::emulator
