#include "backend/cpu/linear.h"

#include <algorithm>
#include <climits>

#include "backend/cpu/packed.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cpu {
namespace {

using Section = CpuPackedWeight::Section;

// A dense tile is 64 rows (four panels run side by side at m = 1) by up to kTokens; k passes in blocks.
constexpr int kTokens = 48;
constexpr int kDenseTileRows = 64;
constexpr int kTilesPerThread = 6;
constexpr int64_t kMinTileWork = 100'000;       // multiply-adds: some µs, well above the price of a claim
constexpr int kDenseWork = 3;                   // a float multiply-add, in integer ones
constexpr int64_t kMinParallelRead = 1 << 14;   // activations: below, one thread prepares them as fast as two
constexpr int kFetchAheadTokens = 8;            // with more the multipliers set the pace, not memory
constexpr size_t kFetchAheadBytes = 128 << 10;  // by each worker: into a part of its second-level cache
constexpr int kFetchParts = 2;                  // of a row: before its prologue and before it is quantized
constexpr size_t kLine = 64;

int ceil_div(int a, int b) { return (a + b - 1) / b; }
size_t round_up(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// An odd number of cache lines, so that rows of a power of two do not fall into the same cache sets.
size_t f32_stride(int k) { return (round_up(k * sizeof(float)) / kLine | 1) * kLine; }

template <class Group>
size_t token_block_bytes(int k, int slots) {
  return round_up(k / kGroup * sizeof(Group) * slots);
}
int token_slots(int m) { return std::min(m, kTokenSlots); }
template <class Group>
size_t quantized_bytes(int m, int k) {
  const int slots = token_slots(m);
  return token_block_bytes<Group>(k, slots) * (ceil_div(m, slots));
}
size_t outliers_stride(int k) { return round_up(outliers_bytes(k)); }
size_t scratch_stride() { return kTokens * kDenseTileRows * sizeof(float); }

size_t bf16_stride(int k) { return (round_up((k + 1) / 2 * 2 * sizeof(uint16_t)) / kLine | 1) * kLine; }

enum class Reads { kF32, kBF16, kGroup8, kGroup16 };

Reads reads(const LinearKernels& kernels, WeightFormat format) {
  if (format == WeightFormat::kBF16 && kernels.quantize.to_bf16) return Reads::kBF16;
  if (reads_f32(format)) return Reads::kF32;
  const bool bytes = (format == WeightFormat::kQ8_0 && !kernels.byte.short_q8_0) || is_int8(format);
  return bytes ? Reads::kGroup16 : Reads::kGroup8;
}

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
  c.token_tiles = ceil_div(m, kTokens);
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
  const int row_tiles = ceil_div(tiles, c.token_tiles);
  c.tile_rows = std::min(even_steps(ceil_div(s.rows, step), row_tiles, c.token_tiles, threads) * step, s.rows);
  if (dense && m > 6) c.tile_rows = std::min(c.tile_rows, kDenseTileRows);
  c.row_tiles = ceil_div(s.rows, c.tile_rows);
  c.spans = c.token_tiles >= threads ? threads : 1;
  return c;
}

// The activations in each form that a section of the weight reads.
struct Activations {
  struct Form {
    std::byte* data = nullptr;
    size_t stride = 0;  // of a block of tokens
    int slots = 1;      // tokens of a block
    size_t slot_bytes = 0;
    std::byte* token(int t) const { return data + t / slots * stride + t % slots * slot_bytes; }
  };
  Form f32, bf16, group8, group16;
  std::byte* outliers = nullptr;  // of group8

  const Form& of(Reads form) const {
    switch (form) {
      case Reads::kF32:
        return f32;
      case Reads::kBF16:
        return bf16;
      case Reads::kGroup8:
        return group8;
      case Reads::kGroup16:
        return group16;
    }
    return f32;
  }
};

class Linear {
 public:
  Linear(CpuQueue& queue, const Kernels& kernels, const LinearParams& p)
      : queue_(queue),
        kernels_(kernels),
        p_(p),
        weight_(static_cast<const CpuPackedWeight&>(*p.weight)),
        k_(weight_.k()) {}

  void run() {
    reserve();
    if (static_cast<int64_t>(p_.m) * k_ < kMinParallelRead) {
      for (int part = 0; part < kFetchParts; ++part) fetch_input(0, part);
      for (int row = 0; row < p_.m; ++row) prepare(row, 0);
    } else {  // by blocks of tokens: their groups share cache lines
      queue_.pool().run(ceil_div(p_.m, kTokenSlots), [this](int block, int worker) {
        const int end = std::min((block + 1) * kTokenSlots, p_.m);
        for (int row = block * kTokenSlots; row < end; ++row) prepare(row, worker);
      });
    }
    multiply();
  }

 private:
  void reserve() {
    bool dense = false, bf16 = false, group8 = false, group16 = false;
    for (const Section& s : weight_.sections()) {
      dense |= form(s) == Reads::kF32;
      bf16 |= form(s) == Reads::kBF16;
      group8 |= form(s) == Reads::kGroup8;
      group16 |= form(s) == Reads::kGroup16;
    }
    // Few plain rows are read where they are; more are copied to rows that do not collide in the caches.
    copy_ = dense && (p_.prologue != Prologue::kNone || p_.m > 6 || !weight_.input_order().empty());
    const size_t m = p_.m, threads = queue_.pool().threads();
    size_t at = 0;
    auto take = [&](bool wanted, size_t bytes) {
      const size_t begin = at;
      if (wanted) at += bytes;
      return begin;
    };
    const size_t f32_at = take(copy_, m * f32_stride(k_));
    const size_t bf16_at = take(bf16, m * bf16_stride(k_));
    const size_t group8_at = take(group8, quantized_bytes<QuantizedGroup8>(p_.m, k_));
    const size_t outliers_at = take(group8, m * outliers_stride(k_));
    const size_t group16_at = take(group16, quantized_bytes<QuantizedGroup16>(p_.m, k_));
    // Rows of each worker: after the prologue, and in the order of the columns.
    const size_t rows_at = take(!copy_ && p_.prologue != Prologue::kNone, threads * f32_stride(k_));
    const size_t ordered_at = take(!weight_.input_order().empty(), threads * f32_stride(k_));
    const size_t scratch_at = take(dense || bf16, threads * scratch_stride());
    std::byte* base = queue_.workspace(at);
    if (copy_) {
      x_.f32 = {base + f32_at, f32_stride(k_)};
    } else if (dense) {
      x_.f32 = {reinterpret_cast<std::byte*>(const_cast<float*>(p_.x)), p_.ldx * sizeof(float)};
    }
    if (bf16) x_.bf16 = {base + bf16_at, bf16_stride(k_)};
    if (group8) {
      x_.group8 = quantized_form<QuantizedGroup8>(base + group8_at);
      x_.outliers = base + outliers_at;
    }
    if (group16) x_.group16 = quantized_form<QuantizedGroup16>(base + group16_at);
    rows_ = base + rows_at;
    ordered_ = base + ordered_at;
    scratch_ = base + scratch_at;
  }

  template <class Group>
  Activations::Form quantized_form(std::byte* data) const {
    const int slots = token_slots(p_.m);
    return {data, token_block_bytes<Group>(k_, slots), slots, sizeof(Group)};
  }

  // Asks for a part of a row: most of it lies in the caches of other cores, beyond what the hardware foresees.
  void fetch_input(int row, int part) const {
    if (row >= p_.m) return;
    const bool gated = p_.prologue != Prologue::kNone && p_.prologue != Prologue::kRmsNorm;
    const size_t bytes = static_cast<size_t>(gated ? 2 * k_ : k_) * sizeof(float);
    const auto* x = reinterpret_cast<const std::byte*>(p_.x + row * p_.ldx);
    const size_t end = bytes * (part + 1) / kFetchParts;
    for (size_t i = bytes * part / kFetchParts; i < end; i += kLine) __builtin_prefetch(x + i);
  }

  // Prologue and quantization of one row: the same code for one row and for many.
  void prepare(int row, int worker) {
    const float* x = p_.x + row * p_.ldx;
    fetch_input(row + 1, 0);
    float* out = reinterpret_cast<float*>(copy_ ? x_.f32.data + row * x_.f32.stride : rows_ + worker * f32_stride(k_));
    switch (p_.prologue) {
      case Prologue::kNone:
        if (copy_) std::copy_n(x, k_, out);
        break;
      case Prologue::kRmsNorm:
        kernels_.rows.rms_norm(x, p_.norm_weight, p_.eps, k_, out);
        x = out;
        break;
      case Prologue::kSiluMul:
        kernels_.rows.silu_mul(x, x + k_, k_, out);
        x = out;
        break;
      case Prologue::kGeluTanhMul:
        kernels_.rows.gelu_tanh_mul(x, x + k_, k_, out);
        x = out;
        break;
      case Prologue::kClampedSiluMul:
        kernels_.rows.clamped_silu_mul(x, x + k_, k_, out);
        x = out;
        break;
    }
    if (const auto& order = weight_.input_order(); !order.empty()) {
      auto* ordered = reinterpret_cast<float*>(ordered_ + worker * f32_stride(k_));
      for (int i = 0; i < k_; ++i) ordered[i] = x[order[i]];
      if (copy_) std::copy_n(ordered, k_, out);
      x = ordered;
    }
    fetch_input(row + 1, 1);
    const auto& quantize = kernels_.linear.quantize;
    if (const auto& form = x_.bf16; form.data) {
      quantize.to_bf16(x, k_, reinterpret_cast<uint16_t*>(form.token(row)));
    }
    if (const auto& form = x_.group8; form.data) {
      quantize.to8(x, k_, reinterpret_cast<QuantizedGroup8*>(form.token(row)), form.slots,
                   reinterpret_cast<Outliers*>(x_.outliers + row * outliers_stride(k_)));
    }
    if (const auto& form = x_.group16; form.data) {
      quantize.to16(x, k_, reinterpret_cast<QuantizedGroup16*>(form.token(row)), form.slots);
    }
  }

  Reads form(const Section& s) const { return reads(kernels_.linear, s.format); }

  Cut cut(const CpuPackedWeight& weight, const Section& s) const {
    return cpu::cut(s, weight.k(), p_.m, queue_.pool().threads());
  }
  int count_tiles(const CpuPackedWeight& weight) const {
    int tiles = 0;
    for (const Section& s : weight.sections()) tiles += cut(weight, s).tiles();
    return tiles;
  }
  // Calls use(section, its cut, the tile's index in it).
  template <class Use>
  void with_tile(const CpuPackedWeight& weight, int tile, Use use) const {
    for (const Section& s : weight.sections()) {
      const Cut c = cut(weight, s);
      if (tile < c.tiles()) return use(s, c, tile);
      tile -= c.tiles();
    }
  }

  void multiply() {
    queue_.pool().run(
        count_tiles(weight_),
        [this](int tile, int worker) {
          with_tile(weight_, tile, [&](const Section& s, const Cut& c, int i) { multiply_tile(s, c, i, worker); });
        },
        [this](int worker) { return fetch_ahead(worker); });
  }

  // The beginning of what the worker is going to multiply next.
  Ahead fetch_ahead(int worker) const {
    Ahead out;
    if (!p_.next || p_.m > kFetchAheadTokens) return out;
    const auto& next = static_cast<const CpuPackedWeight&>(*p_.next);
    const ThreadPool& pool = queue_.pool();
    const int tiles = count_tiles(next), first = pool.first_tile(tiles, worker),
              end = pool.first_tile(tiles, worker + 1);
    if (first == end) return out;
    with_tile(next, first, [&](const Section& s, const Cut& c, int i) {
      const int row = c.place(i).row_tile * c.tile_rows, rows = std::min((end - first) * c.tile_rows, s.rows - row);
      const size_t panels = ceil_div(rows, panel_rows(s.format));
      out = {next.panel(s, row), std::min(kFetchAheadBytes, panels * s.panel_bytes)};
    });
    return out;
  }

  void multiply_tile(const Section& s, const Cut& c, int index, int worker) {
    const Place place = c.place(index);
    const int row = place.row_tile * c.tile_rows, token = place.token_tile * c.tile_tokens;
    const auto& x = x_.of(form(s));
    LinearTile tile;
    tile.weights = weight_.panel(s, row);
    tile.rows = std::min(c.tile_rows, s.rows - row);
    tile.k = k_;
    tile.x = x.token(token);
    tile.slots = x.slots;
    tile.x_stride = x.stride;
    if (x_.outliers) tile.outliers = x_.outliers + token * outliers_stride(k_);
    tile.outliers_stride = outliers_stride(k_);
    tile.m = std::min(c.tile_tokens, p_.m - token);
    tile.from_memory = place.first_tokens;
    tile.bias = p_.bias ? p_.bias + s.first_row + row : nullptr;
    tile.accumulate = p_.accumulate;
    tile.y = p_.y + token * p_.ldy + s.first_row + row;
    tile.ldy = p_.ldy;
    tile.scratch = reinterpret_cast<float*>(scratch_ + worker * scratch_stride());
    kernels_.linear.tile(s.format)(tile);
  }

  CpuQueue& queue_;
  const Kernels& kernels_;
  const LinearParams& p_;
  const CpuPackedWeight& weight_;
  const int k_;
  bool copy_ = false;
  Activations x_;
  std::byte* rows_ = nullptr;
  std::byte* ordered_ = nullptr;
  std::byte* scratch_ = nullptr;
};

}  // namespace

size_t linear_workspace(const WorkspaceLimits& limits, int threads) {
  const size_t m = limits.max_tokens, t = threads;
  const int k = limits.max_k;
  return m * (f32_stride(k) + bf16_stride(k)) + quantized_bytes<QuantizedGroup8>(limits.max_tokens, k) +
         m * outliers_stride(k) + quantized_bytes<QuantizedGroup16>(limits.max_tokens, k) +
         t * (2 * f32_stride(k) + scratch_stride());
}

void linear(CpuQueue& queue, const Kernels& kernels, const LinearParams& p) {
  if (p.m > 0) Linear(queue, kernels, p).run();
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
