#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace octavo {

namespace {

using Scaling = RopeConfig::Scaling;

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

// YaRN (arXiv:2309.00071): dimensions that turn often over the trained positions keep their frequency, those that turn
// seldom are stretched by `factor`, those between blended linearly.
class Yarn {
 public:
  explicit Yarn(const RopeConfig& rope)
      : factor_(rope.factor), low_(border(rope, rope.beta_fast)), high_(border(rope, rope.beta_slow)) {
    if (rope.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, rope.rotary_dim - 1.0);
    if (low_ == high_) high_ += 0.001;  // a step instead of a ramp
  }

  float scale(int pair, float inv_freq) const {
    const float ramp = (static_cast<float>(pair) - static_cast<float>(low_)) / static_cast<float>(high_ - low_);
    const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    return inv_freq / factor_ * (1.0f - kept) + inv_freq * kept;
  }

 private:
  // The pair of dimensions that turns `rotations` times over the trained positions.
  static double border(const RopeConfig& rope, double rotations) {
    return rope.rotary_dim * std::log(rope.original_max_positions / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(double{rope.theta}));
  }

  float factor_;
  double low_, high_;
};

// Dynamic NTK scaling as it stands at the last position: the base grows with the positions beyond the trained ones.
double ntk_theta(const RopeConfig& rope, int max_positions) {
  const double length = std::max(max_positions, rope.original_max_positions);
  const double dim = rope.rotary_dim;
  const double growth = rope.factor * length / rope.original_max_positions - (rope.factor - 1.0);
  return rope.theta * std::pow(growth, dim / (dim - 2));
}

std::vector<float> inverse_frequencies(const RopeConfig& rope, int max_positions) {
  const double theta = rope.scaling == Scaling::kDynamic ? ntk_theta(rope, max_positions) : double{rope.theta};
  const bool beyond = rope.scaling == Scaling::kLongRope && max_positions > rope.original_max_positions;
  const std::vector<float>& factors = beyond ? rope.long_factors : rope.freq_factors;
  const auto yarn = rope.scaling == Scaling::kYarn ? std::optional<Yarn>(rope) : std::nullopt;
  std::vector<float> out;
  for (int i = 0; i < rope.rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rope.rotary_dim);
    float inv_freq = 1.0f / static_cast<float>(std::pow(theta, double{exponent}));
    if (rope.scaling == Scaling::kLinear) inv_freq /= rope.factor;
    if (rope.scaling == Scaling::kLlama3) inv_freq = scale_llama3(rope, inv_freq);
    if (yarn) inv_freq = yarn->scale(i / 2, inv_freq);
    if (!factors.empty()) inv_freq /= factors[i / 2];
    out.push_back(inv_freq);
  }
  return out;
}

}  // namespace

Buffer make_rope_table(const RopeConfig& rope, int max_positions) {
  const std::vector<float> inv_freq = inverse_frequencies(rope, max_positions);
  const size_t half = inv_freq.size();
  Buffer table(static_cast<size_t>(max_positions) * rope.rotary_dim * sizeof(float));
  float* row = table.as<float>();
  for (int position = 0; position < max_positions; ++position, row += rope.rotary_dim) {
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inv_freq[i];
      row[i] = static_cast<float>(std::cos(double{angle})) * rope.attention_factor;
      row[half + i] = static_cast<float>(std::sin(double{angle})) * rope.attention_factor;
    }
  }
  return table;
}

}  // namespace octavo
