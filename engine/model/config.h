#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/kv_group.h"

namespace octavo {

struct RopeConfig {
  float theta = 10000.0f;
  int rotary_dim = 0;
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3 } scaling = Scaling::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;     // kLlama3
  float high_freq_factor = 4.0f;    // kLlama3
  int original_max_positions = 0;   // kLlama3
  std::vector<float> freq_factors;  // [rotary_dim / 2] divides each inverse frequency, or empty (GGUF's rope_freqs)
};

// A decoder, described by its configuration whichever file it came from.
struct ModelConfig {
  std::string architecture;  // "llama"
  int num_layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int max_positions = 0;
  float norm_eps = 1e-5f;
  bool tied_embeddings = false;
  bool attention_bias = false;         // q, k and v
  bool attention_output_bias = false;  // o
  bool mlp_bias = false;
  RopeConfig rope;
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;
};

void check_config(const ModelConfig& config);  // Error(kInvalidArgument, field, ...) for what no decoder can have

}  // namespace octavo
