#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/format.h"
#include "model/rope_table.h"

namespace octavo {

namespace {

std::unique_ptr<DeviceMemory> activations(Backend& backend, int max_tokens, int width) {
  return backend.allocate(static_cast<size_t>(max_tokens) * static_cast<size_t>(width) * sizeof(float));
}

const ModelConfig& checked(const ModelConfig& config) {
  check_config(config);
  return config;
}

bool has_local_rope(const ModelConfig& config) {
  return std::ranges::any_of(config.layers, [](const LayerConfig& l) { return l.rope == LayerRope::kLocal; });
}

int at_least_one(const char* field, int value) {
  if (value >= 1) return value;
  throw Error(ErrorCode::kInvalidArgument, field, cat(field, " must be at least 1, got ", value));
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, WeightFiles& files, Backend& backend, Queue& queue, DType kv_dtype,
                 int max_tokens, int max_positions, bool screen_head)
    : config_(checked(config)),
      backend_(backend),
      max_tokens_(at_least_one("max_tokens", max_tokens)),
      max_positions_(at_least_one("max_positions", max_positions)),
      q_width_(config.heads * config.head_dim),
      kv_width_(config.kv_heads * config.head_dim),
      qkv_width_(q_width_ + 2 * kv_width_),
      attention_scale_(config.attention_scale != 0.0f
                           ? config.attention_scale
                           : static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))),
      kv_groups_(make_kv_groups(config, kv_dtype)),
      cache_places_(config.num_layers),
      weights_(load_decoder_weights(config, files, backend, queue, screen_head)),
      rope_(backend.adopt(queue, make_rope_table(config.rope, max_positions))),
      x_(activations(backend, max_tokens, std::max(q_width_, config.hidden))),
      projected_(activations(backend, max_tokens, std::max({qkv_width_, 2 * config.intermediate, config.hidden}))),
      mixed_(activations(backend, max_tokens, std::max(q_width_, config.hidden))) {
  if (has_local_rope(config)) local_rope_ = backend.adopt(queue, make_rope_table(config.local_rope, max_positions));
  for (size_t group = 0; group < kv_groups_.size(); ++group) {
    const std::vector<int>& layers = kv_groups_[group].layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      cache_places_[layers[i]] = {static_cast<int>(group), static_cast<int>(i)};
    }
  }
  if (config.moe.experts > 0) moe_.emplace(config, backend, max_tokens);
  const int widest = std::max({config.intermediate, config.moe.intermediate, config.moe.shared_intermediate});
  WorkspaceLimits limits;
  limits.max_tokens = max_tokens;
  limits.max_k = std::max({config.hidden, q_width_, widest});
  if (weights_.screen) limits.max_k = std::max(limits.max_k, weights_.screen->columns());
  limits.max_n = std::max({config.hidden, qkv_width_, 2 * widest, config.vocab, config.moe.experts});
  limits.max_heads = config.heads;
  limits.max_head_dim = config.head_dim;
  limits.max_positions = max_positions;
  limits.max_expert_rows = max_tokens * config.moe.experts_per_token;
  queue.reserve(limits);
}

void Decoder::forward(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools) {
  check(batch, pools);
  copy_blocks(queue, batch, pools);
  EmbedParams embed;
  embed.table = weights_.embedding.get();
  embed.ids = batch.tokens;
  embed.num_tokens = batch.num_tokens;
  embed.scale = config_.embedding_scale;
  embed.out = x_->as<float>();
  backend_.embed(queue, embed);
  const int last = config_.num_layers - 1, wanted = batch.num_logits;
  for (int layer = 0; layer < last; ++layer) {
    attention_block(queue, batch, pools, layer);
    feed_forward(queue, batch, batch.num_tokens, layer);
  }
  if (wanted == batch.num_tokens) {
    attention_block(queue, batch, pools, last);
  } else {
    last_attention_block(queue, batch, pools);
  }
  if (wanted == 0) return;
  feed_forward(queue, batch, wanted, last);
  write_logits(queue, batch);
}

void Decoder::check(const ForwardBatch& batch, std::span<KvPool* const> pools) const {
  if (batch.num_tokens < 0 || batch.num_tokens > max_tokens_) {
    throw Error(ErrorCode::kInternal, "num_tokens",
                cat("a step of ", batch.num_tokens, " tokens, the decoder was built for ", max_tokens_));
  }
  if (pools.size() != kv_groups_.size() || batch.groups.size() != kv_groups_.size()) {
    throw Error(
        ErrorCode::kInternal, "pools",
        cat(pools.size(), " pools and ", batch.groups.size(), " batch groups for ", kv_groups_.size(), " KV groups"));
  }
}

void Decoder::copy_blocks(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools) {
  for (size_t g = 0; g < kv_groups_.size(); ++g) {
    if (batch.groups[g].num_copies == 0) continue;
    CopyBlocksParams p;
    p.copies = batch.groups[g].copies;
    p.num_copies = batch.groups[g].num_copies;
    p.kv_heads = kv_groups_[g].kv_heads;
    p.k_dim = kv_groups_[g].k_dim;
    p.v_dim = kv_groups_[g].v_dim;
    for (size_t layer = 0; layer < kv_groups_[g].layers.size(); ++layer) {
      p.cache = pools[g]->layer(static_cast<int>(layer));
      backend_.copy_blocks(queue, p);
    }
  }
}

// y = linear of x, or of rms_norm(x) where sublayers norm their input
LinearParams Decoder::input_linear(const LinearWeights& linear, const DeviceVector& norm, int num_tokens,
                                   float* y) const {
  LinearParams p;
  p.weight = linear.weight.get();
  p.x = x_->as<float>();
  p.ldx = config_.hidden;
  p.m = num_tokens;
  if (config_.pre_norm) {
    p.prologue = Prologue::kRmsNorm;
    p.norm_weight = norm.data();
    p.eps = config_.norm_eps;
  }
  p.bias = linear.bias_data();
  p.y = y;
  p.ldy = linear.weight->n();
  return p;
}

// The last linear of a sublayer, onto the residual stream. scratch: [num_tokens, hidden], not its input.
void Decoder::add_output(Queue& queue, LinearParams linear, const DeviceVector& post_norm, float* scratch) {
  const bool plain = !config_.post_norm && config_.residual_scale == 1.0f;
  linear.accumulate = plain;
  linear.y = plain ? x_->as<float>() : scratch;
  linear.ldy = config_.hidden;
  backend_.linear(queue, linear);
  if (!plain) add_residual(queue, post_norm, linear.m, scratch);
}

// x += residual_scale * y, or of its norm where what sublayers add is normed. y is overwritten.
void Decoder::add_residual(Queue& queue, const DeviceVector& post_norm, int num_tokens, float* y) {
  ResidualAddParams add;
  add.x = x_->as<float>();
  add.y = y;
  add.ldx = add.ldy = add.dim = config_.hidden;
  add.norm_weight = config_.post_norm ? post_norm.data() : nullptr;
  add.eps = config_.norm_eps;
  add.scale = config_.residual_scale;
  add.rows = num_tokens;
  backend_.residual_add(queue, add);
}

const float* Decoder::rope_table(LayerRope rope) const {
  switch (rope) {
    case LayerRope::kNone:
      return nullptr;
    case LayerRope::kGlobal:
      return rope_->as<float>();
    case LayerRope::kLocal:
      return local_rope_->as<float>();
  }
  return nullptr;
}

void Decoder::attention_block(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools, int layer) {
  const LayerWeights& weights = weights_.layers[layer];
  float* qkv = projected_->as<float>();
  write_cache(queue, batch, pools, layer, qkv);
  attend(queue, batch.groups[cache_places_[layer].group].attention, pools, layer, qkv);
  add_attention_output(queue, batch.num_tokens, weights, mixed_->as<float>(), qkv);
}

// Once the last layer's K and V are written, only tokens whose logits are wanted matter: they move together, and the
// rest is done for them alone.
void Decoder::last_attention_block(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools) {
  const int layer = config_.num_layers - 1;
  float* qkv = projected_->as<float>();
  write_cache(queue, batch, pools, layer, qkv);
  if (batch.num_logits == 0) return;
  attend(queue, batch.wanted, pools, layer, qkv);
  gather(queue, mixed_->as<float>(), q_width_, batch, qkv);
  gather(queue, x_->as<float>(), config_.hidden, batch, mixed_->as<float>());
  std::swap(x_, mixed_);
  add_attention_output(queue, batch.num_logits, weights_.layers[layer], qkv, mixed_->as<float>());
}

// The rows of the wanted tokens.
void Decoder::gather(Queue& queue, const float* x, int dim, const ForwardBatch& batch, float* out) {
  GatherRowsParams p;
  p.x = x;
  p.ldx = dim;
  p.rows = batch.logit_tokens;
  p.num_rows = batch.num_logits;
  p.dim = dim;
  p.out = out;
  p.ldo = dim;
  backend_.gather_rows(queue, p);
}

// x: [num_tokens, q_width]; scratch: as in add_output
void Decoder::add_attention_output(Queue& queue, int num_tokens, const LayerWeights& weights, const float* x,
                                   float* scratch) {
  LinearParams out;
  out.weight = weights.out.weight.get();
  out.x = x;
  out.ldx = q_width_;
  out.m = num_tokens;
  out.bias = weights.out.bias_data();
  out.next = weights.gate_up.weight.get();
  add_output(queue, out, weights.attention_post_norm, scratch);
}

// Projects to qkv, rotates and writes the cache.
void Decoder::write_cache(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools, int layer,
                          float* qkv) {
  const LayerWeights& weights = weights_.layers[layer];
  const CachePlace place = cache_places_[layer];
  LinearParams project = input_linear(weights.qkv, weights.attention_norm, batch.num_tokens, qkv);
  project.next = weights.out.weight.get();
  backend_.linear(queue, project);

  RopeWriteParams rope;
  rope.q = qkv;
  rope.k = qkv + q_width_;
  rope.v = qkv + q_width_ + kv_width_;
  rope.ldq = rope.ldk = rope.ldv = qkv_width_;
  rope.rope = rope_table(config_.layer(layer).rope);
  rope.positions = batch.positions;
  rope.slots = batch.groups[place.group].slots;
  rope.num_tokens = batch.num_tokens;
  rope.heads = config_.heads;
  rope.kv_heads = config_.kv_heads;
  rope.k_dim = rope.v_dim = config_.head_dim;
  rope.rotary_dim = config_.rope.rotary_dim;
  if (config_.qk_norm != QkNorm::kNone) {
    rope.q_norm = weights.q_norm.data();
    rope.k_norm = weights.k_norm.data();
    rope.norm_heads_together = config_.qk_norm == QkNorm::kTogether;
    rope.norm_eps = config_.norm_eps;
  }
  rope.cache = pools[place.group]->layer(place.index);
  backend_.rope_write(queue, rope);
}

// qkv to mixed_
void Decoder::attend(Queue& queue, const ForwardBatch::Rows& rows, std::span<KvPool* const> pools, int layer,
                     const float* qkv) {
  const LayerWeights& weights = weights_.layers[layer];
  const LayerConfig kind = config_.layer(layer);
  const CachePlace place = cache_places_[layer];
  AttentionParams attention;
  attention.q = qkv;
  attention.ldq = qkv_width_;
  attention.out = mixed_->as<float>();
  attention.ldo = q_width_;
  attention.rows = rows.rows;
  attention.num_rows = rows.num_rows;
  attention.extent = rows.extent;
  if (kind.window == 0) {  // a window moves past what prompts have in common
    attention.prefix_groups = rows.prefix_groups;
    attention.num_prefix_groups = rows.num_prefix_groups;
  }
  attention.heads = config_.heads;
  attention.kv_heads = config_.kv_heads;
  attention.k_dim = attention.v_dim = config_.head_dim;
  attention.scale = attention_scale_;
  attention.window = kind.window;
  attention.softcap = config_.attention_softcap;
  attention.sinks = weights.sinks.empty() ? nullptr : weights.sinks.data();
  attention.cache = pools[place.group]->layer(place.index);
  backend_.attention(queue, attention);
}

void Decoder::feed_forward(Queue& queue, const ForwardBatch& batch, int num_tokens, int layer) {
  if (config_.has_experts(layer)) {
    experts_block(queue, num_tokens, weights_.layers[layer]);
  } else {
    mlp_block(queue, batch, num_tokens, layer);
  }
}

// Null: the head is multiplied whole.
const OutputScreen* Decoder::screen(const ForwardBatch& batch) const {
  const OutputScreen* screen = weights_.screen.get();
  return screen && batch.greatest_only && batch.num_logits <= screen->max_tokens() ? screen : nullptr;
}

// What is multiplied once a layer is done; after the last one that is the head.
const PackedWeight* Decoder::after_layer(const ForwardBatch& batch, int layer) const {
  if (layer + 1 < config_.num_layers) return weights_.layers[layer + 1].qkv.weight.get();
  const OutputScreen* screen = this->screen(batch);
  return screen ? &screen->coarse() : &weights_.head_matrix();
}

void Decoder::mlp_block(Queue& queue, const ForwardBatch& batch, int num_tokens, int layer) {
  const LayerWeights& weights = weights_.layers[layer];
  float* gate_up = projected_->as<float>();
  LinearParams up = input_linear(weights.gate_up, weights.mlp_norm, num_tokens, gate_up);
  up.next = weights.down.weight.get();
  backend_.linear(queue, up);
  LinearParams down;
  down.weight = weights.down.weight.get();
  down.x = gate_up;
  down.ldx = 2 * config_.intermediate;
  down.m = num_tokens;
  down.prologue = gated(config_.activation);
  down.bias = weights.down.bias_data();
  down.next = after_layer(batch, layer);
  add_output(queue, down, weights.mlp_post_norm, mixed_->as<float>());
}

void Decoder::experts_block(Queue& queue, int num_tokens, const LayerWeights& weights) {
  const float* input = x_->as<float>();
  if (config_.pre_norm) {
    RmsNormParams norm;
    norm.x = input;
    norm.ldx = norm.ldo = norm.dim = config_.hidden;
    norm.weight = weights.mlp_norm.data();
    norm.eps = config_.norm_eps;
    norm.rows = num_tokens;
    norm.out = projected_->as<float>();
    backend_.rms_norm(queue, norm);
    input = projected_->as<float>();
  }
  moe_->forward(queue, weights.moe, input, num_tokens, mixed_->as<float>());
  add_residual(queue, weights.mlp_post_norm, num_tokens, mixed_->as<float>());
}

// The head runs once, over just the wanted rows, which by now are all there are.
void Decoder::write_logits(Queue& queue, const ForwardBatch& batch) {
  LinearParams head;
  head.weight = &weights_.head_matrix();
  head.x = x_->as<float>();
  head.ldx = config_.hidden;
  head.m = batch.num_logits;
  head.prologue = Prologue::kRmsNorm;
  head.norm_weight = weights_.final_norm.data();
  head.eps = config_.norm_eps;
  head.y = batch.logits;
  head.ldy = config_.vocab;
  head.next = weights_.layers[0].qkv.weight.get();
  head.screen = screen(batch);
  backend_.linear(queue, head);
  if (config_.logit_scale == 1.0f && config_.logit_softcap == 0.0f) return;
  ScaleLogitsParams scale;
  scale.x = batch.logits;
  scale.rows = batch.num_logits;
  scale.dim = config_.vocab;
  scale.scale = config_.logit_scale;
  scale.softcap = config_.logit_softcap;
  backend_.scale_logits(queue, scale);
}

}  // namespace octavo
