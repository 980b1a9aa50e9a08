#include <cmath>
#include <type_traits>

#include "backend/cpu/baseline_tile.h"
#include "tensor/half.h"

// Plain loops over the same layouts: right everywhere, quick nowhere. Rows of a panel are the inner loop, which any
// compiler turns into vectors of the target's base instruction set.
namespace octavo {
namespace {

using namespace cpu;

// Codes of chunk c (k = 4c .. 4c + 3), [8 rows][4], unsigned.
template <class Block>
void unpack_chunk(const Block& w, int c, uint8_t* out) {
  const uint8_t* bytes = w.codes + 32 * (c / 2);
  const int shift = c % 2 * 4;
  for (int b = 0; b < 32; ++b) {
    out[b] = (bytes[b] >> shift) & 15;
    if constexpr (requires { w.high; }) out[b] |= (w.high[b] >> c & 1) << 4;
  }
}

template <class Block>
void add_outliers(const LinearTile& tile, const Block* panel, int token, float* acc) {
  const auto& list = *reinterpret_cast<const Outliers*>(tile.outliers + token * tile.outliers_stride);
  for (const Outlier* x = list.entries; x != list.entries + list.count; ++x) {
    const Block& w = panel[x->group];
    uint8_t codes[32];
    unpack_chunk(w, outlier_place(*x) / 4, codes);
    for (int r = 0; r < kGroupRows; ++r) {
      acc[r] += f16_to_f32(w.scale[r]) * static_cast<float>(codes[4 * r + x->shift / 8]) * x->value;
    }
  }
}

template <class Block>
void nibble_tile(const LinearTile& tile) {
  const int groups = tile.k / kGroup;
  const auto* w = reinterpret_cast<const Block*>(tile.weights);
  for (int row = 0; row < tile.rows; row += kGroupRows, w += groups) {
    for (int token = 0; token < tile.m; ++token) {
      const TokenGroups<QuantizedGroup8> x(tile, token);
      float acc[kGroupRows] = {};
      for (int g = 0; g < groups; ++g) {
        int32_t dot[kGroupRows] = {};
        for (int c = 0; c < kGroup / 4; ++c) {
          uint8_t codes[32];
          unpack_chunk(w[g], c, codes);
          for (int r = 0; r < kGroupRows; ++r) {
            for (int i = 0; i < 4; ++i) dot[r] += codes[4 * r + i] * x[g].q[4 * c + i];
          }
        }
        for (int r = 0; r < kGroupRows; ++r) {
          const float scale = f16_to_f32(w[g].scale[r]);
          float min;
          if constexpr (requires { w->min; }) {
            min = f16_to_f32(w[g].min[r]);
          } else {
            min = scale * (std::is_same_v<Block, BlockQ5_0> ? -16.0f : -8.0f);
          }
          acc[r] += scale * x[g].scale * static_cast<float>(dot[r]);
          acc[r] += min * x[g].sum;
        }
      }
      add_outliers(tile, w, token, acc);
      store_outputs(tile, token, row, kGroupRows, acc);
    }
  }
}

const int8_t* byte_codes(const BlockQ8_0& w, int) { return w.codes; }
float byte_scale(const BlockQ8_0& w, int r) { return f16_to_f32(w.scale[r]); }
template <int N>
const int8_t* byte_codes(const BlockInt8<N>& w, int i) {
  return w.groups[i].codes;
}
template <int N>
float byte_scale(const BlockInt8<N>& w, int r) {
  return w.scale[r];
}

template <class Block>
void byte_tile(const LinearTile& tile) {
  const int groups = tile.k / kGroup;
  constexpr int kGroups = groups_of_block<Block>();
  const auto* w = reinterpret_cast<const Block*>(tile.weights);
  for (int row = 0; row < tile.rows; row += kGroupRows, w += groups / kGroups) {
    for (int token = 0; token < tile.m; ++token) {
      const TokenGroups<QuantizedGroup16> x(tile, token);
      float acc[kGroupRows] = {};
      for (int g = 0; g < groups; ++g) {
        const Block& block = w[g / kGroups];
        const int8_t* codes = byte_codes(block, g % kGroups);
        int32_t dot[kGroupRows] = {};
        for (int c = 0; c < kGroup / 2; ++c, codes += 16) {
          const int32_t x0 = x[g].q[2 * c], x1 = x[g].q[2 * c + 1];
          for (int r = 0; r < kGroupRows; ++r) dot[r] += codes[2 * r] * x0 + codes[2 * r + 1] * x1;
        }
        for (int r = 0; r < kGroupRows; ++r) {
          acc[r] += byte_scale(block, r) * x[g].scale * static_cast<float>(dot[r]);
        }
      }
      store_outputs(tile, token, row, kGroupRows, acc);
    }
  }
}

struct F32 {
  using Element = float;
  static void load(const float* w, float* out) {
    for (int r = 0; r < kDenseRows; ++r) out[r] = w[r];
  }
};
struct F16 {
  using Element = uint16_t;
  static void load(const uint16_t* w, float* out) {
    for (int r = 0; r < kDenseRows; ++r) out[r] = f16_to_f32(w[r]);
  }
};
struct BF16 {
  using Element = uint16_t;
  static void load(const uint16_t* w, float* out) {
    for (int r = 0; r < kDenseRows; ++r) out[r] = bf16_to_f32(w[bf16_position(r)]);
  }
};

template <class Weight>
void dense_tile(const LinearTile& tile) {
  constexpr int kTokens = 4;
  const size_t panel = static_cast<size_t>(tile.k) * kDenseRows;
  const auto* w = reinterpret_cast<const typename Weight::Element*>(tile.weights);
  for (int row = 0; row < tile.rows; row += kDenseRows, w += panel) {
    for (int token = 0; token < tile.m; token += kTokens) {
      const int count = tile.m - token < kTokens ? tile.m - token : kTokens;
      float acc[kTokens][kDenseRows] = {};
      for (int i = 0; i < tile.k; ++i) {
        float weights[kDenseRows];
        Weight::load(w + static_cast<size_t>(i) * kDenseRows, weights);
        for (int t = 0; t < count; ++t) {
          const float x = reinterpret_cast<const float*>(tile.x + (token + t) * tile.x_stride)[i];
          for (int r = 0; r < kDenseRows; ++r) acc[t][r] += x * weights[r];
        }
      }
      for (int t = 0; t < count; ++t) store_outputs(tile, token + t, row, kDenseRows, acc[t]);
    }
  }
}

float largest_magnitude(const float* x) {
  float max = 0.0f;
  for (int j = 0; j < kGroup; ++j) {
    const float magnitude = std::fabs(x[j]);
    if (std::isnan(magnitude)) return magnitude;
    if (magnitude > max) max = magnitude;
  }
  return max;
}

// x = scale * q for the values of a group, |q| <= limit; returns the scale.
template <class Code>
float scale_group(const float* x, float limit, Code* q) {
  const float max = largest_magnitude(x);
  const bool zero = max < 1e-30f;  // its inverse would overflow
  const float inverse = zero || !std::isfinite(max) ? 0.0f : limit / max;
  for (int j = 0; j < kGroup; ++j) {
    q[j] = static_cast<Code>(inverse == 0.0f ? 0 : std::lrintf(x[j] * inverse));
  }
  return zero ? 0.0f : max / limit;
}

void quantize8(const float* x, int k, QuantizedGroup8* out, int slots, Outliers* outliers) {
  float total = 0.0f;
  for (int i = 0; i < k; ++i) total += std::fabs(x[i]);
  const float threshold = outlier_threshold(total / static_cast<float>(k));
  outliers->count = 0;
  for (int group = 0; group < k / kGroup; ++group, x += kGroup, out += slots) {
    float rest[kGroup], taken = 0.0f;
    for (int i = 0; i < kGroup; ++i) {
      const bool above = std::fabs(x[i]) > threshold;
      rest[i] = above ? 0.0f : x[i];
      if (!above) continue;
      taken += x[i];
      outliers->entries[outliers->count++] = make_outlier(x[i], group * kGroup + i);
    }
    out->scale = scale_group(rest, 127.0f, out->q);
    for (int h = 0; h < 2; ++h) {
      int sum = 0;
      for (int i = 0; i < kGroup / 2; ++i) sum += out->q[kGroup / 2 * h + i];
      out->half_sums[h] = static_cast<int16_t>(sum);
    }
    out->sum = out->scale * static_cast<float>(out->half_sums[0] + out->half_sums[1]) + taken;
  }
}

void quantize16(const float* x, int k, QuantizedGroup16* out, int slots) {
  for (int i = 0; i < k; i += kGroup, x += kGroup, out += slots) out->scale = scale_group(x, 32767.0f, out->q);
}

}  // namespace

const DenseKernels kDenseBaseline{dense_tile<F32>, dense_tile<F16>, dense_tile<BF16>};
const NibbleKernels kNibbleBaseline{nibble_tile<BlockQ4_0>, nibble_tile<BlockQ4_1>, nibble_tile<BlockQ5_0>,
                                    nibble_tile<BlockQ5_1>};
const ByteKernels kByteBaseline{byte_tile<BlockQ8_0>, byte_tile<BlockInt8<1>>, byte_tile<BlockInt8<4>>, false};
const QuantizeKernels kQuantizeBaseline{quantize8, quantize16, nullptr};

}  // namespace octavo
