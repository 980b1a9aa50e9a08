#pragma once
// Included after vec8_avx2.h, vec8_baseline.h or vec16_avx512.h, by files of one instruction set.
namespace octavo {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;

OCTAVO_INLINE VecI bits(Vec v) { return reinterpret_cast<VecI>(v); }
OCTAVO_INLINE Vec from_bits(VecI v) { return reinterpret_cast<Vec>(v); }
// x * 2^n, n held in the low bits of `shifted`; unsigned, since what is shifted out overflows by design.
OCTAVO_INLINE Vec scale_by_power(Vec x, Vec shifted) {
  typedef uint32_t VecU __attribute__((vector_size(sizeof(VecI))));
  return reinterpret_cast<Vec>(reinterpret_cast<VecU>(x) + (reinterpret_cast<VecU>(shifted) << 23));
}

// 2^x for x <= 0, relative error below 1e-7: exactly 1 at 0, exactly 0 below -126 and at -infinity, NaN at NaN.
// The polynomial is a minimax fit of (2^f - 1) / f on [-0.5, 0.5].
OCTAVO_INLINE Vec exp2_nonpositive(Vec x) {
  const Vec magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
  const Vec shifted = x + magic;
  const Vec f = x - (shifted - magic);
  Vec p = splat(0.00015353361959569156f);
  p = fma(p, f, splat(0.0013398873852565885f));
  p = fma(p, f, splat(0.00961843691766262f));
  p = fma(p, f, splat(0.055503323674201965f));
  p = fma(p, f, splat(0.24022647738456726f));
  p = fma(p, f, splat(0.6931471824645996f));
  p = fma(p, f, splat(1.0f));
  return zero_below(scale_by_power(p, shifted), x, -126.0f);
}

// Minimax fit near 0, (1 - t) / (1 + t) with t = e^(-2|x|) elsewhere: no cancellation on either side.
OCTAVO_INLINE Vec tanh(Vec x) {
  const VecI sign = bits(x) & static_cast<int32_t>(0x80000000u);
  const Vec magnitude = from_bits(bits(x) & 0x7fffffff);
  const Vec z = x * x;
  Vec p = splat(-0.0056607890874147415f);
  p = fma(p, z, splat(0.02060200832784176f));
  p = fma(p, z, splat(-0.05372922867536545f));
  p = fma(p, z, splat(0.13331328332424164f));
  p = fma(p, z, splat(-0.33333277702331543f));
  const Vec small = fma(x * z, p, x);
  const Vec t = exp2_nonpositive(magnitude * splat(-2.0f * kLog2E));
  const Vec one = splat(1.0f);
  const Vec large = from_bits(bits((one - t) / (one + t)) | sign);
  return select(magnitude < splat(0.625f), small, large);
}

}  // namespace
}  // namespace octavo
