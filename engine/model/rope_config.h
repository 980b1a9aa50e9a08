#pragma once
#include <cstdint>
#include <vector>

namespace octavo {

// Rotary positions: which dimensions of a head turn, and how fast.
struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3, kDynamic, kYarn, kLongRope };

  float theta = 10000.0f;
  int rotary_dim = 0;  // the first dimensions of a head
  Scaling scaling = Scaling::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;    // kLlama3
  float high_freq_factor = 4.0f;   // kLlama3
  int original_max_positions = 0;  // all but kNone and kLinear: the positions it was trained with
  float beta_fast = 32.0f;         // kYarn: rotations above which a dimension keeps its frequency
  float beta_slow = 1.0f;          // kYarn: rotations below which it is stretched by `factor`
  bool truncate = true;            // kYarn: the dimensions of these borders are whole numbers
  float attention_factor = 1.0f;   // of every cosine and sine
  // [rotary_dim / 2] divides each inverse frequency, or empty (GGUF's rope_freqs; kLongRope's short factors).
  std::vector<float> freq_factors;
  std::vector<float> long_factors;  // kLongRope: instead of them where positions go beyond original_max_positions
};

}  // namespace octavo
