#include "ops/quantize_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tensor/half.h"

namespace octavo {
namespace {

constexpr int kGroup = kQuantizedGroup;

template <WeightFormat kFrom>
void load_group(const std::byte* row, int begin, float* x) {
  using Element = std::conditional_t<kFrom == WeightFormat::kF32, float, uint16_t>;
  Element raw[kGroup];
  std::memcpy(raw, row + begin * sizeof(raw[0]), sizeof raw);
  for (int i = 0; i < kGroup; ++i) {
    if constexpr (kFrom == WeightFormat::kF32) x[i] = raw[i];
    if constexpr (kFrom == WeightFormat::kF16) x[i] = f16_to_f32(raw[i]);
    if constexpr (kFrom == WeightFormat::kBF16) x[i] = bf16_to_f32(raw[i]);
  }
}

std::byte* put_half(std::byte* to, float v) {
  const uint16_t half = f32_to_f16(v);
  std::memcpy(to, &half, 2);
  return to + 2;
}

std::byte* put_q8_0(const float* x, std::byte* out) {
  float max = 0.0f;
  for (int i = 0; i < kGroup; ++i) max = std::max(max, std::fabs(x[i]));
  const float scale = max / 127.0f, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  out = put_half(out, scale);
  for (int i = 0; i < kGroup; ++i) *out++ = static_cast<std::byte>(static_cast<int>(std::round(x[i] * inverse)));
  return out;
}

std::byte* put_q4_1(const float* x, std::byte* out) {
  const auto [min, max] = std::minmax_element(x, x + kGroup);
  const float low = *min, scale = (*max - low) / 15.0f, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  out = put_half(put_half(out, scale), low);
  const auto code = [&](int i) { return std::min(static_cast<int>((x[i] - low) * inverse + 0.5f), 15); };
  for (int i = 0; i < kGroup / 2; ++i) *out++ = static_cast<std::byte>(code(i) | code(i + kGroup / 2) << 4);
  return out;
}

template <WeightFormat kFrom>
QuantizeRow quantizer_from(WeightFormat to) {
  return to == WeightFormat::kQ8_0 ? quantize_row<kFrom, WeightFormat::kQ8_0>
                                   : quantize_row<kFrom, WeightFormat::kQ4_1>;
}

}  // namespace

template <WeightFormat kFrom, WeightFormat kTo>
void quantize_row(const std::byte* row, int k, std::byte* blocks) {
  for (int begin = 0; begin < k; begin += kGroup) {
    float x[kGroup];
    load_group<kFrom>(row, begin, x);
    blocks = kTo == WeightFormat::kQ8_0 ? put_q8_0(x, blocks) : put_q4_1(x, blocks);
  }
}

QuantizeRow plain_quantizer(WeightFormat from, WeightFormat to) {
  if (from == WeightFormat::kF32) return quantizer_from<WeightFormat::kF32>(to);
  if (from == WeightFormat::kF16) return quantizer_from<WeightFormat::kF16>(to);
  return quantizer_from<WeightFormat::kBF16>(to);
}

template void quantize_row<WeightFormat::kF32, WeightFormat::kQ8_0>(const std::byte*, int, std::byte*);
template void quantize_row<WeightFormat::kF16, WeightFormat::kQ8_0>(const std::byte*, int, std::byte*);
template void quantize_row<WeightFormat::kBF16, WeightFormat::kQ8_0>(const std::byte*, int, std::byte*);
template void quantize_row<WeightFormat::kF32, WeightFormat::kQ4_1>(const std::byte*, int, std::byte*);
template void quantize_row<WeightFormat::kF16, WeightFormat::kQ4_1>(const std::byte*, int, std::byte*);
template void quantize_row<WeightFormat::kBF16, WeightFormat::kQ4_1>(const std::byte*, int, std::byte*);

}  // namespace octavo
