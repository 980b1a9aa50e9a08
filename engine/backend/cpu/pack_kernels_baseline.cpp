#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/pack_kernels.h"
#include "backend/cpu/weight_layout.h"
#include "tensor/half.h"

namespace octavo {
namespace {

using cpu::kGroup;

struct F32 {
  using Element = float;
  static float widen(float v) { return v; }
};
struct F16 {
  using Element = uint16_t;
  static float widen(uint16_t v) { return f16_to_f32(v); }
};
struct BF16 {
  using Element = uint16_t;
  static float widen(uint16_t v) { return bf16_to_f32(v); }
};

template <class Source>
void load_group(const std::byte* row, int begin, float* x) {
  typename Source::Element raw[kGroup];
  std::memcpy(raw, row + begin * sizeof(raw[0]), sizeof raw);
  for (int i = 0; i < kGroup; ++i) x[i] = Source::widen(raw[i]);
}

std::byte* put_half(std::byte* to, float v) {
  const uint16_t half = f32_to_f16(v);
  std::memcpy(to, &half, 2);
  return to + 2;
}

template <class Source>
void quantize_q8_0(const std::byte* row, int k, std::byte* out) {
  for (int begin = 0; begin < k; begin += kGroup) {
    float x[kGroup], max = 0.0f;
    load_group<Source>(row, begin, x);
    for (const float v : x) max = std::max(max, std::fabs(v));
    const float scale = max / 127.0f, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    out = put_half(out, scale);
    for (const float v : x) *out++ = static_cast<std::byte>(static_cast<int>(std::round(v * inverse)));
  }
}

template <class Source>
void quantize_q4_1(const std::byte* row, int k, std::byte* out) {
  for (int begin = 0; begin < k; begin += kGroup) {
    float x[kGroup];
    load_group<Source>(row, begin, x);
    const auto [min, max] = std::minmax_element(x, x + kGroup);
    const float low = *min, scale = (*max - low) / 15.0f, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    out = put_half(put_half(out, scale), low);
    const auto code = [&](int i) { return std::min(static_cast<int>((x[i] - low) * inverse + 0.5f), 15); };
    for (int i = 0; i < kGroup / 2; ++i) *out++ = static_cast<std::byte>(code(i) | code(i + kGroup / 2) << 4);
  }
}

}  // namespace

const PackKernels kPackBaseline{{quantize_q8_0<F32>, quantize_q8_0<F16>, quantize_q8_0<BF16>},
                                {quantize_q4_1<F32>, quantize_q4_1<F16>, quantize_q4_1<BF16>},
                                {}};

}  // namespace octavo
