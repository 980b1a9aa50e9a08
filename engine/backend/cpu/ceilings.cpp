#include "backend/cpu/ceilings.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/pool.h"
#include "base/clock.h"
#include "tensor/buffer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define OCTAVO_TARGET_AVX2 __attribute__((target("avx2,fma"), noinline))
#define OCTAVO_TARGET_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"), noinline))
#define OCTAVO_TARGET_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"), noinline))
#endif

namespace octavo {

namespace {

// Best rate of a region of `work` units: repeated for `seconds`, since the best run is the least disturbed one.
template <class Body>
double best_rate(ThreadPool& pool, double work, double seconds, Body&& body) {
  double best = 0;
  const double end = monotonic_seconds() + seconds;
  do {
    const double begin = monotonic_seconds();
    pool.run(pool.threads(), body);
    best = std::max(best, work / (monotonic_seconds() - begin));
  } while (monotonic_seconds() < end);
  return best;
}

#if defined(__x86_64__)

constexpr int kSteps = 200000;
constexpr int kChains = 10;  // enough to hide the latency of any of these instructions

OCTAVO_TARGET_AVX2 void fma_loop() {
  __m256 acc[kChains];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm256_setzero_ps();
  __m256 x = _mm256_set1_ps(0.999f);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm256_fmadd_ps(acc[c], x, x);
      asm volatile("" : "+x"(acc[c]));
    }
  }
}

OCTAVO_TARGET_AVX2 void int8_loop() {
  __m256i acc[8];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm256_setzero_si256();
  __m256i codes = _mm256_set1_epi8(5), x = _mm256_set1_epi8(3);
  const __m256i one = _mm256_set1_epi16(1);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < 8; ++c) {
      asm volatile("" : "+x"(codes), "+x"(x));
      const __m256i low = _mm256_maddubs_epi16(codes, x);
      asm volatile("" : "+x"(codes), "+x"(x));
      const __m256i both = _mm256_add_epi16(low, _mm256_maddubs_epi16(codes, x));
      acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(both, one));
      asm volatile("" : "+x"(acc[c]));
    }
  }
}

// Groups of 32 codes for two times eight rows and four tokens, from the first-level cache.
struct Group {
  alignas(32) int8_t codes[2][256];
  alignas(32) float row_scales[2][8];
  float activations[4][16];  // two of 16 bits each
  float scales[4];
};
constexpr int kGroups = kSteps / 16, kGroupOps = 2 * 16 * 4 * 32;

OCTAVO_TARGET_AVX2 void int16_loop() {
  Group group;
  std::memset(&group, 0x3e, sizeof(group));  // floats of 0.19
  __m256 acc[2][4];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) acc[i / 4][i % 4] = _mm256_setzero_ps();
  for (int i = 0; i < kGroups; ++i) {
    const Group* g = &group;
    asm volatile("" : "+r"(g) : : "memory");
    __m256i sum[2][4];
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) {
      __m256i codes[2];
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        codes[p] = _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(g->codes[p]) + c));
      }
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        const __m256i x = _mm256_castps_si256(_mm256_broadcast_ss(&g->activations[t][c]));
#pragma GCC unroll 2
        for (int p = 0; p < 2; ++p) {
          const __m256i products = _mm256_madd_epi16(codes[p], x);
          sum[p][t] = c == 0 ? products : _mm256_add_epi32(sum[p][t], products);
          asm("" : "+x"(sum[p][t]));
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const __m256 rows = _mm256_load_ps(g->row_scales[p]);
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        const __m256 scales = _mm256_mul_ps(rows, _mm256_broadcast_ss(&g->scales[t]));
        acc[p][t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(sum[p][t]), acc[p][t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) asm volatile("" : "+x"(acc[i / 4][i % 4]));
}

OCTAVO_TARGET_VNNI void vnni8_loop() {
  __m512i acc[kChains];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm512_setzero_si512();
  __m512i codes = _mm512_set1_epi8(5), x = _mm512_set1_epi8(3);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+v"(codes), "+v"(x));
      acc[c] = _mm512_dpbusd_epi32(acc[c], codes, x);
      asm volatile("" : "+v"(acc[c]));
    }
  }
}

OCTAVO_TARGET_VNNI void vnni16_loop() {
  __m512i acc[kChains];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm512_setzero_si512();
  __m512i codes = _mm512_set1_epi8(5), x = _mm512_set1_epi8(3);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+v"(codes), "+v"(x));
      acc[c] = _mm512_dpwssd_epi32(acc[c], codes, x);
      asm volatile("" : "+v"(acc[c]));
    }
  }
}

OCTAVO_TARGET_BF16 void bf16_loop() {
  __m512 acc[kChains];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm512_setzero_ps();
  auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f00));
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+v"(x));
      acc[c] = _mm512_dpbf16_ps(acc[c], x, x);
      asm volatile("" : "+v"(acc[c]));
    }
  }
}

OCTAVO_TARGET_AVX2 void read_loop(const std::byte* data, size_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    const auto* p = reinterpret_cast<const __m256i*>(data + i);
    a = _mm256_xor_si256(a, _mm256_load_si256(p));
    b = _mm256_xor_si256(b, _mm256_load_si256(p + 1));
    c = _mm256_xor_si256(c, _mm256_load_si256(p + 2));
    d = _mm256_xor_si256(d, _mm256_load_si256(p + 3));
  }
  a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  asm volatile("" : "+x"(a));
}

#endif

}  // namespace

Ceilings measure_ceilings(Isa isa, int threads, double seconds) {
  Ceilings out;
#if defined(__x86_64__)
  if (isa == Isa::kBaseline) return out;
  ThreadPool pool(threads);
  const double n = pool.threads() * static_cast<double>(kSteps);
  out.fma_gflops = best_rate(pool, n * kChains * 16, seconds, [](int, int) { fma_loop(); }) / 1e9;
  if (isa >= Isa::kAvx512Bf16) {
    out.bf16_gflops = best_rate(pool, n * kChains * 64, seconds, [](int, int) { bf16_loop(); }) / 1e9;
  }
  if (isa >= Isa::kAvx512Vnni) {
    out.int8_gops = best_rate(pool, n * kChains * 128, seconds, [](int, int) { vnni8_loop(); }) / 1e9;
    out.int16_gops = best_rate(pool, n * kChains * 64, seconds, [](int, int) { vnni16_loop(); }) / 1e9;
  } else {
    out.int8_gops = best_rate(pool, n * 8 * 128, seconds, [](int, int) { int8_loop(); }) / 1e9;
    out.int16_gops =
        best_rate(pool, double{kGroupOps} * kGroups * pool.threads(), seconds, [](int, int) { int16_loop(); }) / 1e9;
  }

  const size_t whole = size_t{512} << 20, window = size_t{64} << 20;
  Buffer memory(whole);
  std::memset(memory.data(), 1, whole);
  size_t at = 0;
  const size_t share = window / static_cast<size_t>(pool.threads()) / 128 * 128;
  const double end = monotonic_seconds() + seconds;
  do {  // each round reads a window that has left the caches
    at = (at + window) % whole;
    const double rate = best_rate(pool, static_cast<double>(share) * pool.threads(), 0, [&](int tile, int) {
      read_loop(memory.data() + at + static_cast<size_t>(tile) * share, share);
    });
    out.read_gbytes = std::max(out.read_gbytes, rate / 1e9);
  } while (monotonic_seconds() < end);
#endif
  return out;
}

}  // namespace octavo
