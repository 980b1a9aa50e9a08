#include <cstring>

#include "backend/cpu/pack_scaled.h"
#include "backend/cpu/packed.h"
#include "tensor/float8.h"
#include "tensor/half.h"

namespace octavo::cpu {
namespace {

// Code of element k of a group.
template <class Block>
int code(const Block& w, int row, int k) {
  const int c = k / 4, byte = row * 4 + k % 4;
  int value = (w.codes[32 * (c / 2) + byte] >> (c % 2 * 4)) & 15;
  if constexpr (requires { w.high; }) value |= (w.high[byte] >> c & 1) << 4;
  return value;
}

// Each formula as the format defines it, with its own roundings.
float value(const BlockQ4_0& w, int row, int k, float scale) { return scale * static_cast<float>(code(w, row, k) - 8); }
float value(const BlockQ5_0& w, int row, int k, float scale) {
  return scale * static_cast<float>(code(w, row, k) - 16);
}
float value(const BlockQ4_1& w, int row, int k, float scale) {
  return scale * static_cast<float>(code(w, row, k)) + f16_to_f32(w.min[row]);
}
float value(const BlockQ5_1& w, int row, int k, float scale) {
  return scale * static_cast<float>(code(w, row, k)) + f16_to_f32(w.min[row]);
}

template <class Block>
void unpack_groups(const std::byte* panel, int row, int k, float* out) {
  const auto* blocks = reinterpret_cast<const Block*>(panel);
  for (int g = 0; g < k / kGroup; ++g, out += kGroup) {
    const float scale = f16_to_f32(blocks[g].scale[row]);
    for (int i = 0; i < kGroup; ++i) out[i] = value(blocks[g], row, i, scale);
  }
}

void unpack_q8_0(const std::byte* panel, int row, int k, float* out) {
  const auto* blocks = reinterpret_cast<const BlockQ8_0*>(panel);
  for (int g = 0; g < k / kGroup; ++g, out += kGroup) {
    const float scale = f16_to_f32(blocks[g].scale[row]);
    int8_t codes[kGroup];
    for (int c = 0; c < kGroup / 2; ++c) std::memcpy(codes + 2 * c, blocks[g].codes + 16 * c + 2 * row, 2);
    for (int i = 0; i < kGroup; ++i) out[i] = scale * static_cast<float>(codes[i]);
  }
}

template <int N>
void unpack_int8(const std::byte* panel, int row, int k, float* out) {
  const auto* blocks = reinterpret_cast<const BlockInt8<N>*>(panel);
  for (int i = 0; i < k; ++i) {
    const auto& w = blocks[i / (kGroup * N)];
    const int at = i % kGroup;
    out[i] = w.scale[row] * static_cast<float>(w.groups[i / kGroup % N].codes[16 * (at / 2) + 2 * row + at % 2]);
  }
}

template <int N>
void unpack_f8(const std::byte* panel, int row, int k, float* out) {
  const auto* blocks = reinterpret_cast<const BlockF8<N>*>(panel);
  for (int i = 0; i < k; ++i) out[i] = e4m3_to_f32(blocks[i / N].codes[i % N][row]) * blocks[i / N].scale[row];
}

template <class T, class Widen>
void unpack_dense(const std::byte* panel, int position, int k, float* out, Widen widen) {
  const T* from = reinterpret_cast<const T*>(panel) + position;
  for (int i = 0; i < k; ++i) out[i] = widen(from[static_cast<size_t>(i) * kDenseRows]);
}

}  // namespace

void unpack_row(WeightFormat format, const std::byte* panel, int row, int k, float* out) {
  switch (format) {
    case WeightFormat::kF32:
      return unpack_dense<float>(panel, row, k, out, [](float v) { return v; });
    case WeightFormat::kF16:
      return unpack_dense<uint16_t>(panel, row, k, out, f16_to_f32);
    case WeightFormat::kBF16:
      return unpack_dense<uint16_t>(panel, bf16_position(row), k, out, bf16_to_f32);
    case WeightFormat::kQ4_0:
      return unpack_groups<BlockQ4_0>(panel, row, k, out);
    case WeightFormat::kQ4_1:
      return unpack_groups<BlockQ4_1>(panel, row, k, out);
    case WeightFormat::kQ5_0:
      return unpack_groups<BlockQ5_0>(panel, row, k, out);
    case WeightFormat::kQ5_1:
      return unpack_groups<BlockQ5_1>(panel, row, k, out);
    case WeightFormat::kQ8_0:
      return unpack_q8_0(panel, row, k, out);
    case WeightFormat::kInt8x32:
      return unpack_int8<1>(panel, row, k, out);
    case WeightFormat::kInt8x128:
      return unpack_int8<4>(panel, row, k, out);
    case WeightFormat::kF8x32:
      return unpack_f8<32>(panel, row, k, out);
    case WeightFormat::kF8x128:
      return unpack_f8<128>(panel, row, k, out);
    default:
      return unpack_scaled_row(format, panel, row, k, out);
  }
}

}  // namespace octavo::cpu
