#include "model/config.h"

#include <algorithm>
#include <set>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 24;  // of any activation row: products with a row index stay far below 2^63

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(ErrorCode::kInvalidArgument, field, cat(field, " must be from ", low, " to ", high, ", got ", value));
}

void check_factors(const char* field, const RopeConfig& rope, const std::vector<float>& factors, bool needed) {
  const size_t size = factors.size(), half = rope.rotary_dim / 2;
  if ((size != 0 || needed) && size != half) {
    throw Error(ErrorCode::kInvalidArgument, field, cat(field, " must have ", half, " values, got ", size));
  }
  for (const float factor : factors) {
    if (!(factor > 0)) {
      throw Error(ErrorCode::kInvalidArgument, field, cat(field, " must all be above 0, got ", factor));
    }
  }
}

void check_rope(const RopeConfig& rope, int head_dim) {
  using Scaling = RopeConfig::Scaling;
  check_range("rope.rotary_dim", rope.rotary_dim, 2, head_dim);
  if (rope.rotary_dim % 2 != 0) {
    throw Error(ErrorCode::kInvalidArgument, "rope.rotary_dim",
                cat("rope.rotary_dim must be even, got ", rope.rotary_dim));
  }
  const bool long_rope = rope.scaling == Scaling::kLongRope;
  check_factors("rope.freq_factors", rope, rope.freq_factors, long_rope);
  check_factors("rope.long_factors", rope, rope.long_factors, long_rope);
  if (!(rope.theta > 0) || !(rope.factor > 0) || !(rope.attention_factor > 0)) {
    throw Error(ErrorCode::kInvalidArgument, "rope",
                cat("rope.theta, rope.factor and rope.attention_factor must be above 0, got ", rope.theta, ", ",
                    rope.factor, " and ", rope.attention_factor));
  }
  if (rope.scaling != Scaling::kNone && rope.scaling != Scaling::kLinear) {
    check_range("rope.original_max_positions", rope.original_max_positions, 1, INT32_MAX);
  }
  if (rope.scaling == Scaling::kDynamic) check_range("rope.rotary_dim", rope.rotary_dim, 4, head_dim);
  if (rope.scaling == Scaling::kYarn && (!(rope.theta > 1) || !(rope.beta_slow > 0) || !(rope.beta_fast > 0))) {
    throw Error(ErrorCode::kInvalidArgument, "rope.beta_fast",
                cat("rope.beta_fast and rope.beta_slow must be above 0 and rope.theta above 1, got ", rope.beta_fast,
                    ", ", rope.beta_slow, " and ", rope.theta));
  }
  if (rope.scaling == Scaling::kLlama3) {
    if (!(rope.low_freq_factor > 0) || !(rope.high_freq_factor > rope.low_freq_factor)) {
      throw Error(ErrorCode::kInvalidArgument, "rope.high_freq_factor",
                  cat("rope.high_freq_factor must exceed rope.low_freq_factor, which must be above 0; got ",
                      rope.high_freq_factor, " and ", rope.low_freq_factor));
    }
  }
}

void check_layers(const ModelConfig& c) {
  if (!c.layers.empty() && c.layers.size() != static_cast<size_t>(c.num_layers)) {
    throw Error(ErrorCode::kInvalidArgument, "layers",
                cat("layers must have ", c.num_layers, " entries or none, got ", c.layers.size()));
  }
  bool local = false;
  for (const LayerConfig& layer : c.layers) {
    check_range("window", layer.window, 0, INT32_MAX);
    local |= layer.rope == LayerRope::kLocal;
  }
  check_rope(c.rope, c.head_dim);
  if (!local) return;
  check_rope(c.local_rope, c.head_dim);
  if (c.local_rope.rotary_dim != c.rope.rotary_dim) {
    throw Error(
        ErrorCode::kInvalidArgument, "local_rope.rotary_dim",
        cat("local_rope.rotary_dim must be that of rope (", c.rope.rotary_dim, "), got ", c.local_rope.rotary_dim));
  }
}

void check_moe(const MoeConfig& moe) {
  check_range("moe.experts", moe.experts, 0, 1 << 16);
  if (moe.experts == 0) return;
  check_range("moe.experts_per_token", moe.experts_per_token, 1, moe.experts);
  check_range("moe.intermediate", moe.intermediate, 1, kMaxWidth / 2);
  check_range("moe.shared_intermediate", moe.shared_intermediate, 0, kMaxWidth / 2);
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
  check_layers(c);
  check_moe(c.moe);
  if (c.rope_interleaved && c.qk_norm != QkNorm::kNone) {
    throw Error(ErrorCode::kUnsupported, "rope_interleaved", "rope_interleaved cannot stand with qk_norm");
  }
}

std::vector<KvGroup> make_kv_groups(const ModelConfig& c, DType dtype) {
  std::set<int> windows;  // 0 first
  for (int i = 0; i < c.num_layers; ++i) windows.insert(c.layer(i).window);
  std::vector<KvGroup> groups;
  for (const int window : windows) {
    KvGroup group;
    group.kv_heads = c.kv_heads;
    group.k_dim = group.v_dim = c.head_dim;
    group.dtype = dtype;
    group.retain = window == 0 ? Retain::kFull : Retain::kWindow;
    group.window = window;
    for (int i = 0; i < c.num_layers; ++i) {
      if (c.layer(i).window == window) group.layers.push_back(i);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace octavo
