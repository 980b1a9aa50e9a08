#include "backend/cpu/linear_inputs.h"

#include <algorithm>

namespace octavo::cpu {
namespace {

using Section = CpuPackedWeight::Section;

constexpr int64_t kMinParallelRead = 1 << 14;  // activations: below, one thread prepares them as fast as two
constexpr int kFetchParts = 2;                 // of a row: before its prologue and before it is quantized
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
size_t scratch_stride() { return kTileTokens * kDenseTileRows * sizeof(float); }

size_t bf16_stride(int k) { return (round_up((k + 1) / 2 * 2 * sizeof(uint16_t)) / kLine | 1) * kLine; }

}  // namespace

LinearInputs::LinearInputs(CpuQueue& queue, const Kernels& kernels, const LinearParams& p)
    : queue_(queue),
      kernels_(kernels),
      p_(p),
      weight_(static_cast<const CpuPackedWeight&>(*p.weight)),
      features_(weight_.k()),
      columns_(weight_.columns()) {
  reserve();
  if (static_cast<int64_t>(p_.m) * columns_ < kMinParallelRead) {
    for (int part = 0; part < kFetchParts; ++part) fetch(0, part);
    for (int row = 0; row < p_.m; ++row) prepare(row, 0);
  } else {  // by blocks of tokens: their groups share cache lines
    queue_.pool().run(ceil_div(p_.m, kTokenSlots), [this](int block, int worker) {
      const int end = std::min((block + 1) * kTokenSlots, p_.m);
      for (int row = block * kTokenSlots; row < end; ++row) prepare(row, worker);
    });
  }
}

Reads LinearInputs::reads(const Section& section) const {
  const LinearKernels& kernels = kernels_.linear;
  const WeightFormat format = section.format;
  if (format == WeightFormat::kBF16 && kernels.quantize.to_bf16) return Reads::kBF16;
  if (reads_f32(format)) return Reads::kF32;
  const bool bytes = (format == WeightFormat::kQ8_0 && !kernels.byte.short_q8_0) || is_int8(format);
  return bytes ? Reads::kGroup16 : Reads::kGroup8;
}

const LinearInputs::Form& LinearInputs::form(Reads reads) const {
  switch (reads) {
    case Reads::kF32:
      return f32_;
    case Reads::kBF16:
      return bf16_;
    case Reads::kGroup8:
      return group8_;
    case Reads::kGroup16:
      return group16_;
  }
  return f32_;
}

const Outliers& LinearInputs::outliers(int token) const {
  return *reinterpret_cast<const Outliers*>(outliers_ + token * outliers_stride(columns_));
}

LinearTile LinearInputs::tile(const Section& section, int row, int rows, int token, int m, int worker) const {
  const Form& x = form(reads(section));
  LinearTile tile;
  tile.weights = weight_.panel(section, row);
  tile.rows = rows;
  tile.k = columns_;
  tile.x = x.token(token);
  tile.slots = x.slots;
  tile.x_stride = x.stride;
  if (outliers_) tile.outliers = outliers_ + token * outliers_stride(columns_);
  tile.outliers_stride = outliers_stride(columns_);
  tile.m = m;
  tile.bias = p_.bias ? p_.bias + section.first_row + row : nullptr;
  tile.accumulate = p_.accumulate;
  tile.y = p_.y + token * p_.ldy + section.first_row + row;
  tile.ldy = p_.ldy;
  tile.scratch = reinterpret_cast<float*>(scratch_ + worker * scratch_stride());
  return tile;
}

void LinearInputs::reserve() {
  bool dense = false, bf16 = false, group8 = false, group16 = false;
  for (const Section& s : weight_.sections()) {
    dense |= reads(s) == Reads::kF32;
    bf16 |= reads(s) == Reads::kBF16;
    group8 |= reads(s) == Reads::kGroup8;
    group16 |= reads(s) == Reads::kGroup16;
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
  const size_t f32_at = take(copy_, m * f32_stride(columns_));
  const size_t bf16_at = take(bf16, m * bf16_stride(columns_));
  const size_t group8_at = take(group8, quantized_bytes<QuantizedGroup8>(p_.m, columns_));
  const size_t outliers_at = take(group8, m * outliers_stride(columns_));
  const size_t group16_at = take(group16, quantized_bytes<QuantizedGroup16>(p_.m, columns_));
  // Rows of each worker: after the prologue, and in the order of the columns.
  const size_t rows_at = take(!copy_ && p_.prologue != Prologue::kNone, threads * f32_stride(columns_));
  const size_t ordered_at = take(!weight_.input_order().empty(), threads * f32_stride(columns_));
  const size_t scratch_at = take(dense || bf16, threads * scratch_stride());
  std::byte* base = queue_.workspace(at);
  if (copy_) {
    f32_ = {base + f32_at, f32_stride(columns_)};
  } else if (dense) {
    f32_ = {reinterpret_cast<std::byte*>(const_cast<float*>(p_.x)), p_.ldx * sizeof(float)};
  }
  if (bf16) bf16_ = {base + bf16_at, bf16_stride(columns_)};
  if (group8) {
    group8_ = quantized_form<QuantizedGroup8>(base + group8_at);
    outliers_ = base + outliers_at;
  }
  if (group16) group16_ = quantized_form<QuantizedGroup16>(base + group16_at);
  rows_ = base + rows_at;
  ordered_ = base + ordered_at;
  scratch_ = base + scratch_at;
}

template <class Group>
LinearInputs::Form LinearInputs::quantized_form(std::byte* data) const {
  const int slots = token_slots(p_.m);
  return {data, token_block_bytes<Group>(columns_, slots), slots, sizeof(Group)};
}

// Asks for a part of a row: most of it lies in the caches of other cores, beyond what the hardware foresees.
void LinearInputs::fetch(int row, int part) const {
  if (row >= p_.m) return;
  const bool gated = p_.prologue != Prologue::kNone && p_.prologue != Prologue::kRmsNorm;
  const size_t bytes = static_cast<size_t>(gated ? 2 * features_ : features_) * sizeof(float);
  const auto* x = reinterpret_cast<const std::byte*>(p_.x + row * p_.ldx);
  const size_t end = bytes * (part + 1) / kFetchParts;
  for (size_t i = bytes * part / kFetchParts; i < end; i += kLine) __builtin_prefetch(x + i);
}

// Prologue and quantization of one row: the same code for one row and for many.
void LinearInputs::prepare(int row, int worker) {
  const float* x = p_.x + row * p_.ldx;
  fetch(row + 1, 0);
  float* out = reinterpret_cast<float*>(copy_ ? f32_.data + row * f32_.stride : rows_ + worker * f32_stride(columns_));
  switch (p_.prologue) {
    case Prologue::kNone:
      if (copy_) std::copy_n(x, features_, out);
      break;
    case Prologue::kRmsNorm:
      kernels_.rows.rms_norm(x, p_.norm_weight, p_.eps, features_, out);
      x = out;
      break;
    case Prologue::kSiluMul:
      kernels_.rows.silu_mul(x, x + features_, features_, out);
      x = out;
      break;
    case Prologue::kGeluTanhMul:
      kernels_.rows.gelu_tanh_mul(x, x + features_, features_, out);
      x = out;
      break;
    case Prologue::kClampedSiluMul:
      kernels_.rows.clamped_silu_mul(x, x + features_, features_, out);
      x = out;
      break;
  }
  if (const auto& order = weight_.input_order(); !order.empty()) {
    auto* ordered = reinterpret_cast<float*>(ordered_ + worker * f32_stride(columns_));
    for (int i = 0; i < columns_; ++i) ordered[i] = x[order[i]];
    if (copy_) std::copy_n(ordered, columns_, out);
    x = ordered;
  }
  fetch(row + 1, 1);
  const auto& quantize = kernels_.linear.quantize;
  if (const auto& form = bf16_; form.data) {
    quantize.to_bf16(x, columns_, reinterpret_cast<uint16_t*>(form.token(row)));
  }
  if (const auto& form = group8_; form.data) {
    quantize.to8(x, columns_, reinterpret_cast<QuantizedGroup8*>(form.token(row)), form.slots,
                 reinterpret_cast<Outliers*>(outliers_ + row * outliers_stride(columns_)));
  }
  if (const auto& form = group16_; form.data) {
    quantize.to16(x, columns_, reinterpret_cast<QuantizedGroup16*>(form.token(row)), form.slots);
  }
}

size_t linear_workspace(const WorkspaceLimits& limits, int threads) {
  const size_t m = limits.max_tokens, t = threads;
  const int k = limits.max_k;
  return m * (f32_stride(k) + bf16_stride(k)) + quantized_bytes<QuantizedGroup8>(limits.max_tokens, k) +
         m * outliers_stride(k) + quantized_bytes<QuantizedGroup16>(limits.max_tokens, k) +
         t * (2 * f32_stride(k) + scratch_stride());
}

}  // namespace octavo::cpu
