#include "model/config.h"

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 24;  // of any activation row: products with a row index stay far below 2^63

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(ErrorCode::kInvalidArgument, field, cat(field, " must be from ", low, " to ", high, ", got ", value));
}

void check_rope(const RopeConfig& rope, int head_dim) {
  check_range("rope.rotary_dim", rope.rotary_dim, 2, head_dim);
  if (rope.rotary_dim % 2 != 0) {
    throw Error(ErrorCode::kInvalidArgument, "rope.rotary_dim",
                cat("rope.rotary_dim must be even, got ", rope.rotary_dim));
  }
  const size_t factors = rope.freq_factors.size();
  if (factors != 0 && factors != static_cast<size_t>(rope.rotary_dim / 2)) {
    throw Error(ErrorCode::kInvalidArgument, "rope.freq_factors",
                cat("rope.freq_factors must have ", rope.rotary_dim / 2, " values, got ", factors));
  }
  if (!(rope.theta > 0) || !(rope.factor > 0)) {
    throw Error(ErrorCode::kInvalidArgument, "rope",
                cat("rope.theta and rope.factor must be above 0, got ", rope.theta, " and ", rope.factor));
  }
  if (rope.scaling == RopeConfig::Scaling::kLlama3) {
    check_range("rope.original_max_positions", rope.original_max_positions, 1, INT32_MAX);
    if (!(rope.low_freq_factor > 0) || !(rope.high_freq_factor > rope.low_freq_factor)) {
      throw Error(ErrorCode::kInvalidArgument, "rope.high_freq_factor",
                  cat("rope.high_freq_factor must exceed rope.low_freq_factor, which must be above 0; got ",
                      rope.high_freq_factor, " and ", rope.low_freq_factor));
    }
  }
}

}  // namespace

void check_config(const ModelConfig& c) {
  check_range("num_layers", c.num_layers, 1, 1 << 16);
  check_range("hidden", c.hidden, 1, kMaxWidth);
  check_range("intermediate", c.intermediate, 1, kMaxWidth / 2);
  check_range("heads", c.heads, 1, 1 << 16);
  check_range("kv_heads", c.kv_heads, 1, c.heads);
  if (c.heads % c.kv_heads != 0) {
    throw Error(ErrorCode::kInvalidArgument, "kv_heads",
                cat("kv_heads must divide heads (", c.heads, "), got ", c.kv_heads));
  }
  check_range("head_dim", c.head_dim, 1, kMaxWidth / (3 * int64_t{c.heads}));
  check_range("vocab", c.vocab, 1, int64_t{1} << 28);
  check_range("max_positions", c.max_positions, 1, INT32_MAX);
  check_rope(c.rope, c.head_dim);
}

}  // namespace octavo
