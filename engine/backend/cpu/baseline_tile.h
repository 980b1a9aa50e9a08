#pragma once
#include "backend/cpu/linear_kernels.h"

// What the plain loops of every quantized format share.
namespace octavo {
namespace {

inline void store_outputs(const LinearTile& tile, int token, int row, int count, const float* acc) {
  float* y = tile.y + token * tile.ldy + row;
  const int valid = tile.rows - row < count ? tile.rows - row : count;
  for (int r = 0; r < valid; ++r) {
    float value = acc[r];
    if (tile.bias) value += tile.bias[row + r];
    y[r] = tile.accumulate ? y[r] + value : value;
  }
}

// The groups of one token, `slots` apart.
template <class Group>
struct TokenGroups {
  const Group* first;
  int slots;
  TokenGroups(const LinearTile& tile, int token)
      : first(reinterpret_cast<const Group*>(tile.x + token / kTokenSlots * tile.x_stride) + token % kTokenSlots),
        slots(tile.slots) {}
  const Group& operator[](int g) const { return first[static_cast<size_t>(g) * slots]; }
};

}  // namespace
}  // namespace octavo
