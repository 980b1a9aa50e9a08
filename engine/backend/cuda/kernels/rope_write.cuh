#pragma once
// Norm, rotation and cache write of the heads of a token; a warp for each head of q, k and v.
#include <cstdint>

#include "backend/cuda/platform.h"
#include "ops/params.h"

namespace octavo::cuda {

inline constexpr int kRopeWarps = 4;
inline constexpr int kRopeThreads = 32 * kRopeWarps;
inline constexpr int kMaxRopeDim = 512;
inline constexpr int kMaxRopeFours = kMaxRopeDim / 128;  // groups of four dimensions per lane

// What a head is stored as. A scale is that of the head's slot, see kv_group.h.
struct StoreF16 {
  static constexpr bool kScaled = false;
  static __device__ void four(std::byte* to, float4 x, float) {
    const __half2 low = __floats2half2_rn(x.x, x.y), high = __floats2half2_rn(x.z, x.w);
    *reinterpret_cast<uint2*>(to) =
        make_uint2(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
  }
};
struct StoreBf16 {
  static constexpr bool kScaled = false;
  static __device__ void four(std::byte* to, float4 x, float) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(x.x, x.y), high = __floats2bfloat162_rn(x.z, x.w);
    *reinterpret_cast<uint2*>(to) =
        make_uint2(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
  }
};
template <class Code>
struct StoreCodes {
  static constexpr bool kScaled = true;
  static __device__ void four(std::byte* to, float4 x, float inverse) {
    uint32_t codes = 0;
    if (inverse != 0.0f) {
      codes = Code::convert(__fmul_rn(x.x, inverse)) | Code::convert(__fmul_rn(x.y, inverse)) << 8 |
              Code::convert(__fmul_rn(x.z, inverse)) << 16 | Code::convert(__fmul_rn(x.w, inverse)) << 24;
    }
    *reinterpret_cast<uint32_t*>(to) = codes;
  }
  static __device__ float inverse(float largest) {
    return largest > 1e-30f && largest <= 3e38f ? __fdiv_rn(Code::kLimit, largest) : 0.0f;
  }
  static __device__ float scale(float largest) {
    if (largest <= 1e-30f) return 0.0f;
    return __fmul_rn(__fdiv_rn(largest, Code::kLimit), Code::kUnit);
  }
};
struct Int8Code {
  static constexpr float kLimit = 127.0f, kUnit = 1.0f;
  static __device__ uint32_t convert(float x) { return static_cast<uint32_t>(__float2int_rn(x)) & 0xff; }
};
struct F8Code {
  static constexpr float kLimit = 448.0f, kUnit = 256.0f;
  static __device__ uint32_t convert(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }
};
using StoreInt8 = StoreCodes<Int8Code>;
using StoreF8 = StoreCodes<F8Code>;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}
__device__ __forceinline__ float four_squares(float4 v, float sum) {
  return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum))));
}
__device__ __forceinline__ float norm_scale(float squares, int dim, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, static_cast<float>(dim)), eps)));
}

// Largest magnitude of the head, NaN where there is one.
__device__ __forceinline__ float warp_magnitude(float x) {
  const bool nan = __any_sync(0xffffffffu, x != x);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  return nan ? __int_as_float(0x7fc00000) : x;
}

// The sum of the squares of a whole row, by all threads of the block in an order that its width alone decides.
__device__ inline float block_squares(const float* x, int width, float* shared) {
  float sum = 0.0f;
  for (int i = 4 * static_cast<int>(threadIdx.x); i < width; i += 4 * kRopeThreads)
    sum = four_squares(*reinterpret_cast<const float4*>(x + i), sum);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
  __syncthreads();
  const float total = __fadd_rn(__fadd_rn(shared[0], shared[1]), __fadd_rn(shared[2], shared[3]));
  __syncthreads();
  return total;
}

// One head on its way: up to kMaxRopeFours groups of four dimensions per lane, at 4 * lane + 128 * i.
class RopeHead {
 public:
  // together: the factor of a norm over all heads of the token, used where it is not negative.
  __device__ RopeHead(const RopeWriteParams& p, const float* x, int dim, const float* weight, float together)
      : p_(p), dim_(dim), lane_(static_cast<int>(threadIdx.x) % 32) {
#pragma unroll
    for (int i = 0; i < kMaxRopeFours; ++i) {
      if (at(i) < dim_) x_[i] = *reinterpret_cast<const float4*>(x + at(i));
    }
    if (weight) normalize(weight, together);
  }

  // values: [dim] of shared memory, this warp's own.
  __device__ void rotate(const float* cos_sin, float* values) {
#pragma unroll
    for (int i = 0; i < kMaxRopeFours; ++i) {
      if (at(i) < dim_) *reinterpret_cast<float4*>(values + at(i)) = x_[i];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kMaxRopeFours; ++i) {
      if (at(i) >= p_.rotary_dim || at(i) >= dim_) continue;
      x_[i].x = turned(cos_sin, values, at(i));
      x_[i].y = turned(cos_sin, values, at(i) + 1);
      x_[i].z = turned(cos_sin, values, at(i) + 2);
      x_[i].w = turned(cos_sin, values, at(i) + 3);
    }
    __syncwarp();
  }

  __device__ void write(float* to) const {
#pragma unroll
    for (int i = 0; i < kMaxRopeFours; ++i) {
      if (at(i) < dim_) *reinterpret_cast<float4*>(to + at(i)) = x_[i];
    }
  }

  // elements: those of this slot, scale: where its scale goes.
  template <class Store>
  __device__ void store(std::byte* elements, float* scale) const {
    float inverse = 0.0f;
    if constexpr (Store::kScaled) {
      float largest = 0.0f;
#pragma unroll
      for (int i = 0; i < kMaxRopeFours; ++i) {
        if (at(i) >= dim_) continue;
        for (const float v : {x_[i].x, x_[i].y, x_[i].z, x_[i].w}) {
          const float magnitude = fabsf(v);
          if (!(magnitude <= largest)) largest = magnitude;  // a NaN stays
          if (largest != largest) break;
        }
      }
      largest = warp_magnitude(largest);
      inverse = Store::inverse(largest);
      if (lane_ == 0) *scale = Store::scale(largest);
    }
#pragma unroll
    for (int i = 0; i < kMaxRopeFours; ++i) {
      if (at(i) < dim_) Store::four(elements + at(i) * (Store::kScaled ? 1 : 2), x_[i], inverse);
    }
  }

 private:
  __device__ int at(int i) const { return 4 * lane_ + 128 * i; }

  __device__ void normalize(const float* weight, float together) {
    float factor = together;
    if (together < 0.0f) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kMaxRopeFours; ++i) {
        if (at(i) < dim_) sum = four_squares(x_[i], sum);
      }
      factor = norm_scale(warp_sum(sum), dim_, p_.norm_eps);
    }
#pragma unroll
    for (int i = 0; i < kMaxRopeFours; ++i) {
      if (at(i) >= dim_) continue;
      const float4 w = *reinterpret_cast<const float4*>(weight + at(i));
      x_[i].x = __fmul_rn(__fmul_rn(x_[i].x, factor), w.x);
      x_[i].y = __fmul_rn(__fmul_rn(x_[i].y, factor), w.y);
      x_[i].z = __fmul_rn(__fmul_rn(x_[i].z, factor), w.z);
      x_[i].w = __fmul_rn(__fmul_rn(x_[i].w, factor), w.w);
    }
  }

  // Dimension d after the rotation; d and half + d turn together.
  __device__ float turned(const float* cos_sin, const float* values, int d) const {
    const int half = p_.rotary_dim / 2;
    if (d >= p_.rotary_dim) return values[d];
    const int i = d < half ? d : d - half;
    const float c = cos_sin[i], s = cos_sin[half + i], a = values[i], b = values[half + i];
    return d < half ? __fmaf_rn(a, c, -__fmul_rn(b, s)) : __fmaf_rn(b, c, __fmul_rn(a, s));
  }

  const RopeWriteParams& p_;
  int dim_, lane_;
  float4 x_[kMaxRopeFours];
};

// Where a head of K or V stands in the cache.
struct CachePlace {
  std::byte* elements;
  float* scale;
};
template <class Store>
__device__ CachePlace cache_place(const KvLayer& cache, std::byte* base, size_t stride, int head, int dim, int slot) {
  const int size = cache.block_size;
  const size_t element = Store::kScaled ? 1 : 2, elements = static_cast<size_t>(size) * dim * element;
  const size_t head_bytes = elements + (Store::kScaled ? size * sizeof(float) : 0);
  std::byte* block = base + static_cast<size_t>(slot / size) * stride + head * head_bytes;
  return {block + static_cast<size_t>(slot % size) * dim * element,
          reinterpret_cast<float*>(block + elements) + slot % size};
}

// Grid: (tokens, blocks of kRopeWarps heads); kTogether: (tokens, 1), as a norm over all heads reads what it
// overwrites. Dynamic shared memory: k_dim floats for each warp.
template <class Store, bool kTogether>
__global__ void __launch_bounds__(kRopeThreads) write_rotated(RopeWriteParams p) {
  __shared__ float partial[kRopeWarps];
  const int token = static_cast<int>(blockIdx.x), warp = static_cast<int>(threadIdx.x) / 32;
  float* q = p.q + token * p.ldq;
  float* k = p.k + token * p.ldk;
  float q_factor = -1.0f, k_factor = -1.0f;
  if constexpr (kTogether) {
    if (p.q_norm) q_factor = norm_scale(block_squares(q, p.heads * p.k_dim, partial), p.heads * p.k_dim, p.norm_eps);
    if (p.k_norm)
      k_factor = norm_scale(block_squares(k, p.kv_heads * p.k_dim, partial), p.kv_heads * p.k_dim, p.norm_eps);
  }
  float* values = dynamic_shared<float>() + warp * p.k_dim;
  const float* cos_sin = p.rope ? p.rope + static_cast<int64_t>(p.positions[token]) * p.rotary_dim : nullptr;
  const int slot = p.slots[token];
  const int heads = p.heads + (p.v ? 2 : 1) * p.kv_heads, stride = kTogether ? kRopeWarps : heads;
  for (int h = kTogether ? warp : static_cast<int>(blockIdx.y) * kRopeWarps + warp; h < heads; h += stride) {
    if (h < p.heads) {
      float* x = q + static_cast<int64_t>(h) * p.k_dim;
      const float* weight = p.q_norm ? p.q_norm + (kTogether ? h * p.k_dim : 0) : nullptr;
      if (!weight && !cos_sin) continue;
      RopeHead head(p, x, p.k_dim, weight, q_factor);
      if (cos_sin) head.rotate(cos_sin, values);
      head.write(x);
    } else if (h < p.heads + p.kv_heads) {
      const int own = h - p.heads;
      float* x = k + static_cast<int64_t>(own) * p.k_dim;
      const float* weight = p.k_norm ? p.k_norm + (kTogether ? own * p.k_dim : 0) : nullptr;
      RopeHead head(p, x, p.k_dim, weight, k_factor);
      if (cos_sin) head.rotate(cos_sin, values);
      if (cos_sin || weight) head.write(x);
      if (slot < 0) continue;
      const CachePlace place = cache_place<Store>(p.cache, p.cache.k, p.cache.k_stride, own, p.k_dim, slot);
      head.template store<Store>(place.elements, place.scale);
    } else if (slot >= 0) {
      const int own = h - p.heads - p.kv_heads;
      const RopeHead head(p, p.v + token * p.ldv + static_cast<int64_t>(own) * p.v_dim, p.v_dim, nullptr, -1.0f);
      const CachePlace place = cache_place<Store>(p.cache, p.cache.v, p.cache.v_stride, own, p.v_dim, slot);
      head.template store<Store>(place.elements, place.scale);
    }
  }
}

}  // namespace octavo::cuda
