#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/weight_layout.h"

namespace octavo {

// A group of 32 activations as integers: x = scale * q, symmetric. A value that is not finite makes the scale so, hence
// the outputs.
struct QuantizedGroup8 {  // |q| <= 127, for 4- and 5-bit weights, maybe for q8_0; outliers have q = 0
  float scale;
  float sum;             // scale * (sum of q) + outliers
  int16_t half_sums[2];  // of q
  int8_t q[cpu::kGroup];
};
struct QuantizedGroup16 {  // |q| <= 32767, for 8-bit weights: a sum over the group fits 32 bits
  float scale;
  int16_t q[cpu::kGroup];
};

// An activation far above its row's mean magnitude would cost its whole group precision, so it is multiplied in
// float32, after the groups.
struct Outlier {
  float value;
  uint32_t shift;    // of the code in its 32 bits
  uint16_t group;    // k / 32
  uint16_t address;  // of the codes in the group's block, in bytes from its first code
};
constexpr Outlier make_outlier(float value, int k) {
  const int chunk = k % cpu::kGroup / 4;
  return {value, static_cast<uint32_t>(k % 4 * 8 + chunk % 2 * 4), static_cast<uint16_t>(k / cpu::kGroup),
          static_cast<uint16_t>(chunk / 2 * 32)};
}
constexpr int outlier_place(const Outlier& x) {  // k % 32
  return (x.address / 16 + x.shift % 8 / 4) * 4 + x.shift / 8;
}
struct Outliers {  // of one token, in the order of k
  int64_t count;
  Outlier entries[];  // room for max_outliers(k)
};
// A multiple of the mean magnitude. Among numbers so small that the mean is rounded to 0 none is an outlier.
constexpr float outlier_threshold(float mean) {
  constexpr float kFactor = 9.0f, kLeast = 1e-30f;
  return kFactor * mean < kLeast ? kLeast : kFactor * mean;
}
constexpr int max_outliers(int k) { return k / 8; }  // fewer than k / 9, rounding aside
constexpr size_t outliers_bytes(int k) { return sizeof(Outliers) + max_outliers(k) * sizeof(Outlier); }

// Quantized tokens lie in blocks [k / 32][slots], so that the tokens a kernel takes at once are one stream. Fewer
// tokens than a block's slots make one block of just as many slots.
inline constexpr int kTokenSlots = 4;

// y[t, r] = sum over k of x[t, k] * w[r, k], for the rows of some panels and some tokens.
struct LinearTile {
  const std::byte* weights = nullptr;  // first panel
  int rows = 0;                        // rows to compute; the last panel may be cut
  int k = 0;
  const std::byte* x = nullptr;  // f32 or bf16 [m, k] (dense weights) or blocks of QuantizedGroup [k / 32][slots]
  int slots = 0;                 // of a block: kTokenSlots, or m where the whole operation has fewer tokens
  size_t x_stride = 0;           // bytes from row to row or from block to block
  const std::byte* outliers = nullptr;  // 8-bit activations: one Outliers per token
  size_t outliers_stride = 0;           // bytes
  int m = 0;
  bool from_memory = true;      // the weights were not read a moment ago
  const float* bias = nullptr;  // [rows] or null
  bool accumulate = false;      // y += instead of y =
  float* y = nullptr;           // [m, rows], row stride ldy
  int64_t ldy = 0;
  float* scratch = nullptr;  // dense: [ceil(rows / 16) * 16 * m]
};

// Every kernel reduces an output over k in one order, whatever m and the place of the row in a tile.
using TileKernel = void (*)(const LinearTile&);

struct DenseKernels {
  TileKernel f32, f16, bf16;
};
struct NibbleKernels {
  TileKernel q4_0, q4_1, q5_0, q5_1;
};
struct ByteKernels {
  TileKernel q8_0, int8x32, int8x128;
  bool short_q8_0;  // q8_0 meets 8-bit activations instead of 16-bit ones
};
struct ScaledKernels {  // weights of scaled_blocks.h
  TileKernel q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4, int4x32, int4x128;
};
struct F8Kernels {
  TileKernel f8x32, f8x128;
};
struct QuantizeKernels {
  // One token; its groups are `slots` apart.
  void (*to8)(const float* x, int k, QuantizedGroup8* out, int slots, Outliers* outliers);
  void (*to16)(const float* x, int k, QuantizedGroup16* out, int slots);
  // Nearest, ties to even, and a zero behind an odd k. Null: bf16 weights are multiplied with f32 activations.
  void (*to_bf16)(const float* x, int k, uint16_t* out);
};
struct Bf16Kernels {  // bf16 weights and activations
  TileKernel tile;
  void (*round)(const float* x, int k, uint16_t* out);
};

struct LinearKernels {
  DenseKernels dense;
  NibbleKernels nibble;
  ByteKernels byte;
  ScaledKernels scaled;
  F8Kernels f8;
  QuantizeKernels quantize;

  TileKernel tile(WeightFormat format) const;
};

extern const DenseKernels kDenseBaseline, kDenseAvx2;
extern const NibbleKernels kNibbleBaseline, kNibbleAvx2, kNibbleAvx512;
extern const ByteKernels kByteBaseline, kByteAvx2, kByteAvx512;
extern const ScaledKernels kScaledBaseline, kScaledAvx2, kScaledAvx512;
extern const TileKernel kShortByteAvx512;  // q8_0 with 8-bit activations
extern const F8Kernels kF8Baseline, kF8Avx2;
extern const QuantizeKernels kQuantizeBaseline, kQuantizeAvx2;
extern const Bf16Kernels kBf16Avx512;

}  // namespace octavo
