#pragma once
#include "backend/cpu/avx2_ops.h"

namespace octavo {
namespace {

// Accumulates one panel for T tokens of a block of S slots. Format: Block, Group, kAhead (blocks to prefetch ahead) and
// add_group<T>.
template <class Format, int T, int S>
OCTAVO_INLINE void panel_tokens(const LinearTile& tile, const typename Format::Block* w, const std::byte* x, int token,
                                int row) {
  using Block = typename Format::Block;
  const auto* groups = reinterpret_cast<const typename Format::Group*>(x);
  const int count = tile.k / cpu::kGroup;
  __m256 acc[T];
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) acc[t] = _mm256_setzero_ps();
  for (int g = 0; g < count; ++g) {
    if (T <= 2 || token == 0) {  // the first pass over a panel: memory sets the pace
      const char* ahead = reinterpret_cast<const char*>(w + g) + Format::kAhead * sizeof(Block);
      OCTAVO_UNROLL
      for (size_t line = 0; line < (sizeof(Block) + 63) / 64; ++line) _mm_prefetch(ahead + 64 * line, _MM_HINT_T0);
    }
    Format::template add_group<T>(w[g], groups + g * S, acc);
  }
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) store_outputs(tile, token + t, row, acc[t]);
}

template <class Format>
void quantized_tile(const LinearTile& tile) {
  static_assert(kTokenSlots == 4);
  const auto* w = reinterpret_cast<const typename Format::Block*>(tile.weights);
  for (int row = 0; row < tile.rows; row += cpu::kGroupRows, w += tile.k / cpu::kGroup) {
    const std::byte* x = tile.x;
    switch (tile.slots) {
      case 1:
        panel_tokens<Format, 1, 1>(tile, w, x, 0, row);
        continue;
      case 2:
        panel_tokens<Format, 2, 2>(tile, w, x, 0, row);
        continue;
      case 3:
        panel_tokens<Format, 3, 3>(tile, w, x, 0, row);
        continue;
      default:
        break;
    }
    int token = 0;
    for (; token + 4 <= tile.m; token += 4, x += tile.x_stride) panel_tokens<Format, 4, 4>(tile, w, x, token, row);
    switch (tile.m - token) {
      case 1:
        panel_tokens<Format, 1, 4>(tile, w, x, token, row);
        break;
      case 2:
        panel_tokens<Format, 2, 4>(tile, w, x, token, row);
        break;
      case 3:
        panel_tokens<Format, 3, 4>(tile, w, x, token, row);
        break;
      default:
        break;
    }
  }
}

}  // namespace
}  // namespace octavo
