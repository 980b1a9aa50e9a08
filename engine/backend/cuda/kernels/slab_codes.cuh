#pragma once
#include "backend/cuda/platform.h"
#include "backend/cuda/slab_order.h"
#include "backend/cuda/weight_layout.h"

// A lane's part of a slab of codes, and its way to operand A of mma.m16n8k16. A pair is two steps, 32 columns.
namespace octavo::cuda {

inline __device__ uint32_t half2_minus(uint32_t a, uint32_t b) {
  const __half2 d = __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&d);
}

// Two halves 1024 + c; taking 1024 + offset off is exact.
inline constexpr uint32_t kMagicHalves = 0x64006400u;
constexpr uint32_t both_halves(uint32_t v) { return v | v << 16; }

// Bytes b0 .. b3 as two times two halves 1024 + b.
inline __device__ uint32_t low_bytes_to_halves(uint32_t bytes) { return __byte_perm(bytes, kMagicHalves, 0x5150); }
inline __device__ uint32_t high_bytes_to_halves(uint32_t bytes) { return __byte_perm(bytes, kMagicHalves, 0x5352); }

// The table's bytes for four nibbles.
template <WeightFormat kFormat>
__device__ uint32_t look_up(uint32_t nibbles) {
  constexpr bool doubled = kFormat == WeightFormat::kMXFP4;
  constexpr uint32_t t0 = table_word(doubled, 0), t1 = table_word(doubled, 1), t2 = table_word(doubled, 2),
                     t3 = table_word(doubled, 3);
  const uint32_t places = nibbles & 0x7777u;
  const uint32_t upper = (nibbles & 0x8888u) >> 1 | 0x3210u;  // of each place: whether it is in the upper eight
  return __byte_perm(__byte_perm(t0, t1, places), __byte_perm(t2, t3, places), upper);
}

// Two small floats, sign and magnitude moved to where f16 has them: their values times 2^-8.
inline __device__ uint32_t e4m3_halves(uint32_t upper_bytes) {
  return (upper_bytes & 0x80008000u) | (upper_bytes & 0x7f007f00u) >> 1;
}

template <WeightFormat kFormat>
struct SlabCodes {
  static constexpr WeightLayout kLayout = weight_layout(kFormat);
  static constexpr CodePlanes kPlanes = kLayout.planes;
  static constexpr int kBytes = code_bytes(kPlanes);  // of a slab
  static constexpr bool kWords4 = kPlanes == CodePlanes::kNibbles || kPlanes == CodePlanes::kTable ||
                                  kPlanes == CodePlanes::kNibblesBit || kPlanes == CodePlanes::kNibblesPair;
  static constexpr bool kWords8 = kPlanes == CodePlanes::kBytes || kPlanes == CodePlanes::kE4M3;
  uint32_t words[kBytes / 128];

  // slab: of the matrix's codes
  __device__ void load(const std::byte* slab, int lane) {
    if constexpr (kWords4 || kWords8) load16(slab, lane, 0);
    if constexpr (kWords8) load16(slab + 512, lane, 4);
    if constexpr (kPlanes == CodePlanes::kNibblesBit) load4(slab + 512, lane, 4);
    if constexpr (kPlanes == CodePlanes::kNibblesPair) load8(slab + 512, lane, 4);
    if constexpr (kPlanes == CodePlanes::kPairs || kPlanes == CodePlanes::kPairsBit) load8(slab, lane, 0);
    if constexpr (kPlanes == CodePlanes::kPairsBit) load4(slab + 256, lane, 2);
  }

  // a[step of the pair][register]: the codes less their offset. zero: of rows g and g + 8 (has_zero)
  __device__ void fragments(int pair, const uint32_t (&zero)[2], uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int reg = 0; reg < 4; ++reg) {
        if constexpr (kPlanes == CodePlanes::kE4M3) {
          const uint32_t bytes = words[4 * pair + 2 * step + reg / 2];
          a[step][reg] = e4m3_halves(__byte_perm(bytes, 0, reg % 2 ? 0x3424 : 0x1404));
        } else {
          uint32_t offset = kMagicHalves | both_halves(kLayout.offset);
          if constexpr (has_zero(kLayout.scales)) offset = zero[reg % 2];
          a[step][reg] = half2_minus(magic_halves(pair, step, reg), offset);
        }
      }
    }
  }

 private:
  // Two halves 1024 + code.
  __device__ uint32_t magic_halves(int pair, int step, int reg) const {
    const int in_pair = 4 * step + reg, in_slab = 8 * pair + in_pair;  // registers of operand A before this one
    if constexpr (kPlanes == CodePlanes::kBytes) {
      const uint32_t bytes = words[4 * pair + 2 * step + reg / 2];
      return reg % 2 ? high_bytes_to_halves(bytes) : low_bytes_to_halves(bytes);
    } else if constexpr (kPlanes == CodePlanes::kTable) {
      const uint32_t bytes = look_up<kFormat>(words[2 * pair + step] >> (reg / 2 * 16));
      return reg % 2 ? high_bytes_to_halves(bytes) : low_bytes_to_halves(bytes);
    } else if constexpr (kPlanes == CodePlanes::kPairs || kPlanes == CodePlanes::kPairsBit) {
      uint32_t codes = (words[pair] >> (2 * in_pair)) & 0x00030003u;
      if constexpr (kPlanes == CodePlanes::kPairsBit) codes |= plane_bit(words[2], in_slab, 2);
      return codes | kMagicHalves;
    } else {
      uint32_t codes = (words[2 * pair + step] >> (4 * reg)) & 0x000f000fu;
      if constexpr (kPlanes == CodePlanes::kNibblesBit) codes |= plane_bit(words[4], in_slab, 4);
      if constexpr (kPlanes == CodePlanes::kNibblesPair) {
        codes |= moved(words[4 + pair], 2 * in_pair, 4) & 0x00300030u;
      }
      return codes | kMagicHalves;
    }
  }

  // Bit `from` of a word at bit `to`, and so the others with it.
  static __device__ uint32_t moved(uint32_t word, int from, int to) {
    return from <= to ? word << (to - from) : word >> (from - to);
  }
  static __device__ uint32_t plane_bit(uint32_t plane, int from, int to) {
    return moved(plane, from, to) & (0x00010001u << to);
  }

  __device__ void load16(const std::byte* plane, int lane, int to) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(plane) + lane);
    words[to] = v.x;
    words[to + 1] = v.y;
    words[to + 2] = v.z;
    words[to + 3] = v.w;
  }
  __device__ void load8(const std::byte* plane, int lane, int to) {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(plane) + lane);
    words[to] = v.x;
    words[to + 1] = v.y;
  }
  __device__ void load4(const std::byte* plane, int lane, int to) {
    words[to] = __ldg(reinterpret_cast<const uint32_t*>(plane) + lane);
  }
};

// Rows of 16-bit floats as they are. A lane has 8 neighbouring columns of each pair, of rows g and g + 8.
template <>
struct SlabCodes<WeightFormat::kF16> {
  uint32_t words[16];

  // slab: column 0 of the slab in row 0 of the tile
  __device__ void load(const std::byte* slab, size_t row_bytes, int lane) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::byte* from = slab + (lane / 4 + 8 * row) * row_bytes + lane % 4 * 16;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const uint4 v = __ldg(reinterpret_cast<const uint4*>(from + 64 * pair));
        uint32_t* to = words + 8 * pair + row;  // registers of both steps in turn
        to[0] = v.x;
        to[2] = v.y;
        to[4] = v.z;
        to[6] = v.w;
      }
    }
  }
  __device__ void fragments(int pair, const uint32_t (&)[2], uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = words[8 * pair + i];
  }
};
template <>
struct SlabCodes<WeightFormat::kBF16> : SlabCodes<WeightFormat::kF16> {};

}  // namespace octavo::cuda
