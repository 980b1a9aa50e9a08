#include "model/rope_table.h"

#include <cmath>
#include <numbers>

namespace octavo {

namespace {

// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
float scale_llama3(const RopeConfig& rope, float inv_freq) {
  const auto context = static_cast<double>(rope.original_max_positions);
  const float low_freq_wavelength = static_cast<float>(context / rope.low_freq_factor);
  const float high_freq_wavelength = static_cast<float>(context / rope.high_freq_factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / inv_freq;
  if (wavelength < high_freq_wavelength) return inv_freq;
  if (wavelength > low_freq_wavelength) return inv_freq / rope.factor;
  const float blend = (static_cast<float>(context) / wavelength - rope.low_freq_factor) /
                      (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - blend) * inv_freq / rope.factor + blend * inv_freq;
}

std::vector<float> inverse_frequencies(const RopeConfig& rope) {
  std::vector<float> out;
  for (int i = 0; i < rope.rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rope.rotary_dim);
    float inv_freq = 1.0f / static_cast<float>(std::pow(double{rope.theta}, double{exponent}));
    if (rope.scaling == RopeConfig::Scaling::kLinear) inv_freq /= rope.factor;
    if (rope.scaling == RopeConfig::Scaling::kLlama3) inv_freq = scale_llama3(rope, inv_freq);
    if (!rope.freq_factors.empty()) inv_freq /= rope.freq_factors[i / 2];
    out.push_back(inv_freq);
  }
  return out;
}

}  // namespace

Buffer make_rope_table(const RopeConfig& rope, int max_positions) {
  const std::vector<float> inv_freq = inverse_frequencies(rope);
  const size_t half = inv_freq.size();
  Buffer table(static_cast<size_t>(max_positions) * rope.rotary_dim * sizeof(float));
  float* row = table.as<float>();
  for (int position = 0; position < max_positions; ++position, row += rope.rotary_dim) {
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inv_freq[i];
      row[i] = static_cast<float>(std::cos(double{angle}));
      row[half + i] = static_cast<float>(std::sin(double{angle}));
    }
  }
  return table;
}

}  // namespace octavo
