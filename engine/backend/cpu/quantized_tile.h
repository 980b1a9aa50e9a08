#pragma once
#include <algorithm>

#include "backend/cpu/avx2_ops.h"

namespace octavo {
namespace {

// The part of a quantized tile that all vector instruction sets share. A Format has
//   Block, Group, Vector (of accumulators: kPanels panels of 8 rows), zero(),
//   add_group<P, T>(blocks, activations, acc): one group of P vectors of panels for T tokens; where a block has more
//   than one group (Block::kGroups), add_group<P, T>(blocks, group, activations, acc),
//   weights_at(panels, outlier): what an outlier meets in a vector of panels; formats without outliers have none,
//   kAhead: the distance in blocks at which memory is prefetched.

// Outliers are summed on their own, in order of k, after the groups.
template <class Format, int P, int T>
OCTAVO_INLINE void add_outliers(const typename Format::Block* const (&panels)[P * Format::kPanels],
                                const LinearTile& tile, int token, typename Format::Vector (&acc)[P][T]) {
  if constexpr (requires(const Outlier& x) { Format::weights_at(panels, x); }) {
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      const auto& list = *reinterpret_cast<const Outliers*>(tile.outliers + (token + t) * tile.outliers_stride);
      typename Format::Vector sum[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) sum[p] = Format::zero();
      for (const Outlier *x = list.entries, *end = x + list.count; x != end; ++x) {
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) add_product(Format::weights_at(panels + p * Format::kPanels, *x), x->value, sum[p]);
      }
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) acc[p][t] += sum[p];
    }
  }
}

// The panels that follow, asked for evenly while a tile's tokens pass over those at hand, four by four: in the first
// pass alone multiplications would wait for memory, and in the others memory for them.
class NextPanels {
 public:
  // The pass of `token` over `groups` groups, of which each has `group_bytes` in all of the panels.
  NextPanels(const LinearTile& tile, const void* panels, size_t group_bytes, int groups, int token)
      : near_(2 * groups * group_bytes <= kNear) {
    const int passes = (tile.m + kTokenSlots - 1) / kTokenSlots;
    share_ = (group_bytes / passes + kLine - 1) / kLine * kLine;
    end_ = static_cast<const char*>(panels) + groups * group_bytes;
    at_ = tile.from_memory ? static_cast<const char*>(panels) + token / kTokenSlots * groups * share_ : end_;
  }

  OCTAVO_INLINE void fetch_share() {
    for (const char* end = std::min(at_ + share_, end_); at_ < end; at_ += kLine) {
      if (near_) {
        _mm_prefetch(at_, _MM_HINT_T0);
      } else {
        _mm_prefetch(at_, _MM_HINT_T1);
      }
    }
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kNear = 24 << 10;  // both sets of panels: they leave room in a first-level cache of 32 KB

  bool near_;
  size_t share_;
  const char* at_;
  const char* end_;
};

template <class Format, int P, int T, int S>
OCTAVO_INLINE void panel_tokens(const LinearTile& tile, const typename Format::Block* first, const std::byte* x,
                                int token, int row) {
  using Block = typename Format::Block;
  constexpr int kPanels = P * Format::kPanels;
  const auto* groups = reinterpret_cast<const typename Format::Group*>(x);
  const int count = tile.k / (cpu::kGroup * cpu::groups_of_block<typename Format::Block>());
  const Block* panel[kPanels];  // past the tile's last one that one again: its outputs are not stored
  const int last = (tile.rows - row - 1) / cpu::kGroupRows;
  OCTAVO_UNROLL
  for (int p = 0; p < kPanels; ++p) panel[p] = first + (p <= last ? p : last) * count;
  typename Format::Vector acc[P][T];
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) acc[p][t] = Format::zero();
  }
  const bool few = tile.m <= kTokenSlots;  // memory sets the pace. Past the end of a panel the next ones begin.
  NextPanels next(tile, first + kPanels * count, kPanels * sizeof(Block), count, token);
  for (int g = 0; g < count; ++g) {
    const Block* w[kPanels];
    OCTAVO_UNROLL
    for (int p = 0; p < kPanels; ++p) w[p] = panel[p] + g;
    if (few) {
      const int ahead = g + Format::kAhead < count ? Format::kAhead : Format::kAhead + (kPanels - 1) * count;
      OCTAVO_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        OCTAVO_UNROLL
        for (size_t line = 0; line < (sizeof(Block) + 63) / 64; ++line) {
          _mm_prefetch(reinterpret_cast<const char*>(w[p] + ahead) + 64 * line, _MM_HINT_T0);
        }
      }
    } else {
      next.fetch_share();
    }
    if constexpr (requires { Block::kGroups; }) {
      for (int i = 0; i < Block::kGroups; ++i) {
        Format::template add_group<P, T>(w, i, groups + (g * Block::kGroups + i) * S, acc);
      }
    } else {
      Format::template add_group<P, T>(w, groups + g * S, acc);
    }
  }
  add_outliers<Format, P, T>(panel, tile, token, acc);
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      store_outputs(tile, token + t, row + p * Format::kPanels * cpu::kGroupRows, acc[p][t]);
    }
  }
}

template <class Format, int P>
OCTAVO_INLINE int panels(const LinearTile& tile, int row) {
  static_assert(kTokenSlots == 4);
  const int count = tile.k / (cpu::kGroup * cpu::groups_of_block<typename Format::Block>());
  constexpr int kRows = Format::kPanels * cpu::kGroupRows;
  for (; row + (P - 1) * kRows < tile.rows; row += P * kRows) {
    const auto* w = reinterpret_cast<const typename Format::Block*>(tile.weights) + row / cpu::kGroupRows * count;
    const std::byte* x = tile.x;
    switch (tile.slots) {
      case 1:
        panel_tokens<Format, P, 1, 1>(tile, w, x, 0, row);
        continue;
      case 2:
        panel_tokens<Format, P, 2, 2>(tile, w, x, 0, row);
        continue;
      case 3:
        panel_tokens<Format, P, 3, 3>(tile, w, x, 0, row);
        continue;
      default:
        break;
    }
    int token = 0;
    for (; token + 4 <= tile.m; token += 4, x += tile.x_stride) panel_tokens<Format, P, 4, 4>(tile, w, x, token, row);
    switch (tile.m - token) {
      case 1:
        panel_tokens<Format, P, 1, 4>(tile, w, x, token, row);
        break;
      case 2:
        panel_tokens<Format, P, 2, 4>(tile, w, x, token, row);
        break;
      case 3:
        panel_tokens<Format, P, 3, 4>(tile, w, x, token, row);
        break;
      default:
        break;
    }
  }
  return row;
}

template <class Format>
void quantized_tile(const LinearTile& tile) {
  // Two panels share the reads of the activations; with few tokens one stream from memory is the quicker way.
  const int row = tile.m <= kTokenSlots ? 0 : panels<Format, 2>(tile, 0);
  panels<Format, 1>(tile, row);
}

}  // namespace
}  // namespace octavo
