#include "backend/cpu/linear.h"

#include <algorithm>
#include <climits>

#include "base/errors.h"
#include "base/format.h"

namespace octavo::cpu {
namespace {

using Section = CpuPackedWeight::Section;

constexpr int kTilesPerThread = 6;
constexpr int64_t kMinTileWork = 100'000;       // multiply-adds: some µs, well above the price of a claim
constexpr int kDenseWork = 3;                   // a float multiply-add, in integer ones
constexpr int kFetchAheadTokens = 8;            // with more the multipliers set the pace, not memory
constexpr size_t kFetchAheadBytes = 128 << 10;  // by each worker: into a part of its second-level cache

int ceil_div(int a, int b) { return (a + b - 1) / b; }

struct Place {
  int row_tile, token_tile;
  bool first_tokens;  // of those that meet these rows in one span
};

// How a section is cut. Many tokens are dealt out as one span for each thread, which then finds what it has computed
// for them, and prepared, in its own caches; within a span row tiles lie outside, token tiles inside, so that weights
// are read from memory once.
struct Cut {
  int tile_rows, row_tiles, tile_tokens, token_tiles, spans;
  int tiles() const { return row_tiles * token_tiles; }
  Place place(int index) const {
    const int span = static_cast<int>((static_cast<int64_t>(index / row_tiles) * spans + spans - 1) / token_tiles);
    const int first = begin(span), tokens = begin(span + 1) - first, at = index - first * row_tiles;
    return {at / tokens, first + at % tokens, at % tokens == 0};
  }

 private:
  int begin(int span) const { return static_cast<int>(static_cast<int64_t>(token_tiles) * span / spans); }
};

// Steps of a row tile, about as many as make `row_tiles` tiles of all: those with which the busiest thread has least.
int even_steps(int steps, int row_tiles, int token_tiles, int threads) {
  const int most = ceil_div(steps, row_tiles);
  int best = most, least = INT_MAX;
  for (int size = most; size > 0 && 2 * size >= most; --size) {
    const int busiest = ceil_div(ceil_div(steps, size) * token_tiles, threads) * size;
    if (busiest < least) {
      least = busiest;
      best = size;
    }
  }
  return best;
}

Cut cut(const Section& s, int k, int m, int threads) {
  Cut c;
  c.token_tiles = ceil_div(m, kTileTokens);
  c.tile_tokens = ceil_div(m, c.token_tiles);
  if (c.token_tiles > 1) c.tile_tokens = ceil_div(c.tile_tokens, kTokenSlots) * kTokenSlots;
  const bool dense = reads_f32(s.format);
  const int64_t work = static_cast<int64_t>(m) * s.rows * k * (dense ? kDenseWork : 1);
  int tiles = static_cast<int>(std::clamp<int64_t>(work / kMinTileWork, 1, kTilesPerThread * threads));
  // Few tiles are dealt out evenly.
  if (tiles > 1 && tiles < 3 * threads) tiles = ceil_div(tiles, threads) * threads;
  // Rows in the steps that the kernels like best.
  int step = m <= kTokenSlots ? kGroupRows : 4 * kGroupRows;
  if (dense) step = m <= 3 ? kDenseTileRows : kDenseRows;
  const int steps = ceil_div(s.rows, step);
  int row_tiles = ceil_div(tiles, c.token_tiles);
  if (dense && m > 6) row_tiles = std::max(row_tiles, ceil_div(s.rows, kDenseTileRows));
  c.tile_rows = std::min(even_steps(steps, row_tiles, c.token_tiles, threads) * step, s.rows);
  c.row_tiles = ceil_div(s.rows, c.tile_rows);
  c.spans = c.token_tiles >= threads ? threads : 1;
  return c;
}

// The tiles of all sections of a weight, for m tokens.
class Tiles {
 public:
  Tiles(const CpuPackedWeight& weight, int m, int threads) : weight_(weight), m_(m), threads_(threads) {}

  int count() const {
    int tiles = 0;
    for (const Section& s : weight_.sections()) tiles += cut(s).tiles();
    return tiles;
  }
  // Calls use(section, its cut, the tile's index in it).
  template <class Use>
  void with(int tile, Use use) const {
    for (const Section& s : weight_.sections()) {
      const Cut c = cut(s);
      if (tile < c.tiles()) return use(s, c, tile);
      tile -= c.tiles();
    }
  }

 private:
  Cut cut(const Section& s) const { return cpu::cut(s, weight_.columns(), m_, threads_); }

  const CpuPackedWeight& weight_;
  const int m_, threads_;
};

}  // namespace

Ahead next_weights(const ThreadPool& pool, const LinearParams& p, int worker) {
  Ahead out;
  if (!p.next || p.m > kFetchAheadTokens) return out;
  const auto& next = static_cast<const CpuPackedWeight&>(*p.next);
  const Tiles all(next, p.m, pool.threads());
  const int tiles = all.count(), first = pool.first_tile(tiles, worker), end = pool.first_tile(tiles, worker + 1);
  if (first == end) return out;
  all.with(first, [&](const Section& s, const Cut& c, int i) {
    const int row = c.place(i).row_tile * c.tile_rows, rows = std::min((end - first) * c.tile_rows, s.rows - row);
    const size_t panels = ceil_div(rows, panel_rows(s.format));
    out = {next.panel(s, row), std::min(kFetchAheadBytes, panels * s.panel_bytes)};
  });
  return out;
}

void multiply(CpuQueue& queue, const Kernels& kernels, const LinearParams& p, const LinearInputs& inputs) {
  ThreadPool& pool = queue.pool();
  const Tiles tiles(static_cast<const CpuPackedWeight&>(*p.weight), p.m, pool.threads());
  pool.run(
      tiles.count(),
      [&](int index, int worker) {
        tiles.with(index, [&](const Section& s, const Cut& c, int i) {
          const Place place = c.place(i);
          const int row = place.row_tile * c.tile_rows, token = place.token_tile * c.tile_tokens;
          LinearTile tile = inputs.tile(s, row, std::min(c.tile_rows, s.rows - row), token,
                                        std::min(c.tile_tokens, p.m - token), worker);
          tile.from_memory = place.first_tokens;
          kernels.linear.tile(s.format)(tile);
        });
      },
      [&](int worker) { return next_weights(pool, p, worker); });
}

void linear(CpuQueue& queue, const Kernels& kernels, const LinearParams& p) {
  if (p.m == 0) return;
  const LinearInputs inputs(queue, kernels, p);
  multiply(queue, kernels, p, inputs);
}

void embed(CpuQueue& queue, const EmbedParams& p) {
  constexpr int kRows = 16;  // of a tile: some µs
  const int k = p.table->k();
  queue.pool().run(ceil_div(p.num_tokens, kRows), [&](int tile, int) {
    for (int t = tile * kRows; t < std::min((tile + 1) * kRows, p.num_tokens); ++t) {
      if (p.ids[t] < 0 || p.ids[t] >= p.table->n()) {
        throw Error(ErrorCode::kInvalidArgument, "token_ids",
                    cat("token id ", p.ids[t], " is outside [0, ", p.table->n(), ")"));
      }
      float* out = p.out + static_cast<size_t>(t) * k;
      p.table->dequantize_row(p.ids[t], out);
      if (p.scale != 1.0f) {
        for (int i = 0; i < k; ++i) out[i] *= p.scale;
      }
    }
  });
}

}  // namespace octavo::cpu
