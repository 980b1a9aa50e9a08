#pragma once
#include "backend/cuda/kernels/slab_codes.cuh"

// A lane's scales of a slab: those of rows g and g + 8 of the tile, g = lane / 4.
namespace octavo::cuda {

inline __device__ float low_half(uint32_t word) { return __half2float(__ushort_as_half(word & 0xffffu)); }
inline __device__ float high_half(uint32_t word) { return __half2float(__ushort_as_half(word >> 16)); }
// Byte i of a word, exactly: 2^23 + byte less 2^23.
inline __device__ float byte_to_float(uint32_t word, int i) {
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7540 | i)) - 8388608.0f;
}

// w = scale * (code - offset) + min. Halves: of 16 columns, where the format has scales for them.
template <bool kHalves>
struct PairScales {
  float scale[kHalves ? 2 : 1][2];  // [half][row]
  float min[kHalves ? 2 : 1][2];
  uint32_t zero[2];  // 1024 + zero point, twice
};

template <WeightFormat kFormat>
struct SlabScales {
  static constexpr ScaleKind kKind = weight_layout(kFormat).scales;
  static constexpr ScaleRecord kRecord = scale_record(kKind);
  static constexpr bool kHalves = has_halves(kKind);
  static constexpr bool kIsSuper = kRecord.slab_bytes > 0;
  static constexpr int kWords = kKind == ScaleKind::kF16Min || kKind == ScaleKind::kF32 || kKind == ScaleKind::kF32Zero
                                    ? 4
                                : kKind == ScaleKind::kSuper ? 1
                                                             : 2;
  uint32_t words[kWords];
  uint32_t more[2];  // zero points, or super-scales

  // tile: the first record of the tile
  __device__ void load(const std::byte* tile, int slab, int lane) {
    const int group = lane / 4;
    const std::byte* record = tile + slab / kRecord.slabs * kRecord.bytes;
    if constexpr (kIsSuper) {
      load_words<kRecord.head / 32>(record, group, more);
      load_words<kWords>(record + kRecord.head + slab % kRecord.slabs * kRecord.slab_bytes, group, words);
    } else {
      load_words<kWords>(record, group, words);
    }
    if constexpr (kKind == ScaleKind::kF32Zero)
      more[0] = __ldg(reinterpret_cast<const uint32_t*>(record + 128) + group);
    if constexpr (kKind == ScaleKind::kWideZero)
      more[0] = __ldg(reinterpret_cast<const uint16_t*>(record + 64) + group);
  }

  __device__ void pair(int pair, PairScales<kHalves>& out) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if constexpr (kIsSuper) {
        pair_of_super(pair, row, out);
      } else {
        out.scale[0][row] = plain_scale(pair, row);
        if constexpr (kKind == ScaleKind::kF16Min) {
          out.min[0][row] = pair ? high_half(words[2 + row]) : low_half(words[2 + row]);
        }
        if constexpr (has_zero(kKind)) {
          const int at = kKind == ScaleKind::kWideZero ? row : 2 * row + pair;
          out.zero[row] = kMagicHalves | (more[0] >> (8 * at) & 0xffu) * 0x00010001u;
        }
      }
    }
  }

 private:
  __device__ float plain_scale(int pair, int row) const {
    constexpr float kUnit = SlabCodes<kFormat>::kPlanes == CodePlanes::kE4M3 ? 256.0f : 1.0f;
    if constexpr (kKind == ScaleKind::kF16 || kKind == ScaleKind::kF16Min) {
      return pair ? high_half(words[row]) : low_half(words[row]);
    } else if constexpr (kKind == ScaleKind::kBF16) {
      return __uint_as_float(pair ? words[row] & 0xffff0000u : words[row] << 16);
    } else if constexpr (kKind == ScaleKind::kF32 || kKind == ScaleKind::kF32Zero) {
      return __uint_as_float(words[2 * row + pair]) * kUnit;
    } else {
      return __uint_as_float(words[row]) * kUnit;
    }
  }

  __device__ void pair_of_super(int pair, int row, PairScales<kHalves>& out) const {
    const float scale = row ? high_half(more[0]) : low_half(more[0]);
    [[maybe_unused]] float min = 0.0f;
    if constexpr (has_min(kKind)) min = row ? high_half(more[1]) : low_half(more[1]);
    if constexpr (kKind == ScaleKind::kSuper) {
      out.scale[0][row] = scale * (byte_to_float(words[0], 2 * row + pair) - 128.0f);
    } else if constexpr (kKind == ScaleKind::kSuperMin) {
      out.scale[0][row] = scale * byte_to_float(words[0], 2 * row + pair);
      out.min[0][row] = -(min * byte_to_float(words[1], 2 * row + pair));
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = 2 * pair + half;
        if constexpr (kKind == ScaleKind::kSuperHalves) {
          out.scale[half][row] = scale * (byte_to_float(words[row], at) - 128.0f);
        } else {
          out.scale[half][row] = scale * byte_to_float(words[row] & 0x0f0f0f0fu, at);
          out.min[half][row] = -(min * byte_to_float(words[row] >> 4 & 0x0f0f0f0fu, at));
        }
      }
    }
  }

  template <int kCount>
  static __device__ void load_words(const std::byte* record, int group, uint32_t* to) {
    if constexpr (kCount == 1) {
      to[0] = __ldg(reinterpret_cast<const uint32_t*>(record) + group);
    } else if constexpr (kCount == 2) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(record) + group);
      to[0] = v.x;
      to[1] = v.y;
    } else {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(record) + group);
      to[0] = v.x;
      to[1] = v.y;
      to[2] = v.z;
      to[3] = v.w;
    }
  }
};

}  // namespace octavo::cuda
