#pragma once
// What CUDA kernels find built in: indices, barriers, warp collectives, atomics, intrinsics.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "backend/cuda/emulator/block.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// Static shared memory, in a section of its own (see block.cpp). The compiler takes it for an error when variables of
// templates and of plain functions share a section, so each gets a name that differs behind the assembler's comment
// sign.
#define OCTAVO_TEXT_OF(x) #x
#define OCTAVO_SHARED_SECTION(n) "octavo_shared,\"aw\",@progbits#" OCTAVO_TEXT_OF(n)
#define __shared__ __attribute__((section(OCTAVO_SHARED_SECTION(__COUNTER__)))) static

#define threadIdx (::octavo::emulator::Block::current().lane().thread)
#define blockIdx (::octavo::emulator::Block::current().block_index())
#define blockDim (::octavo::emulator::Block::current().shape().block)
#define gridDim (::octavo::emulator::Block::current().shape().grid)
inline constexpr int warpSize = 32;

namespace octavo::emulator {

inline BarrierVotes block_barrier(int value, Site site) { return Block::current().barrier(value, site); }

// Each lane takes the value of the lane that it names.
template <class T>
T shuffle(unsigned mask, T value, unsigned source, Site site) {
  struct Operand {
    T value;
    unsigned source;
  };
  const Resolve resolve = [](Exchange* const* lanes, unsigned lane_mask) {
    for (unsigned n = 0; n < kWarp; ++n) {
      if (!(lane_mask >> n & 1)) continue;
      Operand own, taken;
      std::memcpy(&own, lanes[n]->operand, sizeof own);
      if (!(lane_mask >> own.source & 1)) Block::current().fail("a shuffle reads a lane that is not in its mask");
      std::memcpy(&taken, lanes[own.source]->operand, sizeof taken);
      std::memcpy(lanes[n]->result, &taken.value, sizeof(T));
    }
  };
  return Block::current().collective<T>(mask, Operand{value, source}, resolve, site);
}

inline unsigned lane_in_warp() { return Block::current().lane().index % kWarp; }

// One result for all lanes, folded in the order of the lanes.
template <class T, class Result, class Fold>
Result fold_lanes(unsigned mask, T value, Fold, Site site) {
  const Resolve resolve = [](Exchange* const* lanes, unsigned lane_mask) {
    Result result{};
    bool first = true;
    for (unsigned n = 0; n < kWarp; ++n) {
      if (!(lane_mask >> n & 1)) continue;
      T operand;
      std::memcpy(&operand, lanes[n]->operand, sizeof operand);
      Fold{}(result, operand, n, first);
      first = false;
    }
    for (unsigned n = 0; n < kWarp; ++n) {
      if (lane_mask >> n & 1) std::memcpy(lanes[n]->result, &result, sizeof result);
    }
  };
  return Block::current().collective<Result>(mask, value, resolve, site);
}

struct Ballot {
  void operator()(unsigned& bits, int vote, unsigned lane, bool) const { bits |= vote ? 1u << lane : 0u; }
};
struct Sum {
  template <class T>
  void operator()(T& total, T value, unsigned, bool) const {
    total = static_cast<T>(static_cast<unsigned>(total) + static_cast<unsigned>(value));
  }
};
struct Least {
  template <class T>
  void operator()(T& least, T value, unsigned, bool first) const {
    least = first || value < least ? value : least;
  }
};
struct Greatest {
  template <class T>
  void operator()(T& greatest, T value, unsigned, bool first) const {
    greatest = first || value > greatest ? value : greatest;
  }
};
struct AllBits {
  void operator()(unsigned& bits, unsigned value, unsigned, bool first) const { bits = first ? value : bits & value; }
};
struct AnyBits {
  void operator()(unsigned& bits, unsigned value, unsigned, bool) const { bits |= value; }
};
struct OddBits {
  void operator()(unsigned& bits, unsigned value, unsigned, bool) const { bits ^= value; }
};

}  // namespace octavo::emulator

inline void __syncthreads(OCTAVO_SITE_PARAMS) { octavo::emulator::block_barrier(0, OCTAVO_SITE); }
inline int __syncthreads_or(int value, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::block_barrier(value, OCTAVO_SITE).any;
}
inline int __syncthreads_and(int value, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::block_barrier(value, OCTAVO_SITE).all;
}
inline int __syncthreads_count(int value, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::block_barrier(value, OCTAVO_SITE).count;
}
inline unsigned __ballot_sync(unsigned mask, int vote, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::fold_lanes<int, unsigned>(mask, vote, octavo::emulator::Ballot{}, OCTAVO_SITE);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, OCTAVO_SITE_PARAMS) {
  octavo::emulator::fold_lanes<int, unsigned>(mask, 0, octavo::emulator::Ballot{}, OCTAVO_SITE);
}
inline int __any_sync(unsigned mask, int vote, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::fold_lanes<int, unsigned>(mask, vote, octavo::emulator::Ballot{}, OCTAVO_SITE) != 0;
}
inline int __all_sync(unsigned mask, int vote, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::fold_lanes<int, unsigned>(mask, vote, octavo::emulator::Ballot{}, OCTAVO_SITE) == mask;
}

#define OCTAVO_REDUCE(name, type, fold)                                                                  \
  inline type __reduce_##name##_sync(unsigned mask, type value, OCTAVO_SITE_PARAMS) {                    \
    return octavo::emulator::fold_lanes<type, type>(mask, value, octavo::emulator::fold{}, OCTAVO_SITE); \
  }
OCTAVO_REDUCE(add, int, Sum)
OCTAVO_REDUCE(add, unsigned, Sum)
OCTAVO_REDUCE(min, int, Least)
OCTAVO_REDUCE(min, unsigned, Least)
OCTAVO_REDUCE(max, int, Greatest)
OCTAVO_REDUCE(max, unsigned, Greatest)
OCTAVO_REDUCE(and, unsigned, AllBits)
OCTAVO_REDUCE(or, unsigned, AnyBits)
OCTAVO_REDUCE(xor, unsigned, OddBits)
#undef OCTAVO_REDUCE

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, OCTAVO_SITE_PARAMS) {
  const unsigned lane = octavo::emulator::lane_in_warp(), group = lane & ~(static_cast<unsigned>(width) - 1);
  return octavo::emulator::shuffle(mask, value, group | (static_cast<unsigned>(source) & (width - 1)), OCTAVO_SITE);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, OCTAVO_SITE_PARAMS) {
  const unsigned lane = octavo::emulator::lane_in_warp(), source = lane ^ static_cast<unsigned>(lane_mask);
  const bool inside = source / width <= lane / width;
  return octavo::emulator::shuffle(mask, value, inside ? source : lane, OCTAVO_SITE);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, OCTAVO_SITE_PARAMS) {
  const unsigned lane = octavo::emulator::lane_in_warp();
  const bool inside = lane % width + delta < static_cast<unsigned>(width);
  return octavo::emulator::shuffle(mask, value, inside ? lane + delta : lane, OCTAVO_SITE);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, OCTAVO_SITE_PARAMS) {
  const unsigned lane = octavo::emulator::lane_in_warp();
  return octavo::emulator::shuffle(mask, value, lane % width >= delta ? lane - delta : lane, OCTAVO_SITE);
}

// Lanes run one at a time, so a plain read and write is atomic.
template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = std::max(old, value);
  return old;
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = std::min(old, value);
  return old;
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = old | value;
  return old;
}
template <class T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = old & value;
  return old;
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = value;
  return old;
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}
// Counts up and starts again at 0 after `last`.
inline unsigned atomicInc(unsigned* at, unsigned last) {
  const unsigned old = *at;
  *at = old >= last ? 0 : old + 1;
  return old;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}
template <class T>
void __stcg(T* at, T value) {
  *at = value;
}

inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float rsqrtf(float x) { return __frsqrt_rn(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x > 0.0f ? std::min(x, 1.0f) : 0.0f; }
using std::max;
using std::min;

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32) | low) >> (shift & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32) | low) << (shift & 31) >> 32);
}
// Byte i of the result is the one of the eight bytes of (a, b) that nibble i of the selector names.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = (static_cast<uint64_t>(b) << 32) | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> (4 * i);
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (pick & 7))) & 0xff;
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
// c + the sum of four products of bytes.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 0xff) * (b >> (8 * i) & 0xff);
  return c;
}
