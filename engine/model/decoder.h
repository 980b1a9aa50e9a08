#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "model/decoder_weights.h"
#include "model/moe_block.h"
#include "ops/backend.h"

namespace octavo {

// A transformer decoder (RMSNorm, rotary positions, grouped-query attention, gated MLP), driven by its configuration: a
// family differs from another by fields, not by a class. Owns packed weights and the activations of
// one step; forward() allocates nothing. The backend must outlive it.
class Decoder {
 public:
  // Packs the weights, reserves the queue's workspace for steps of up to `max_tokens` tokens at positions below
  // `max_positions`. screen_head: see ForwardBatch::greatest_only. Errors name the configuration's field or the tensor.
  Decoder(const ModelConfig& config, WeightFiles& files, Backend& backend, Queue& queue, DType kv_dtype, int max_tokens,
          int max_positions, bool screen_head);

  const ModelConfig& config() const { return config_; }
  const std::vector<KvGroup>& kv_groups() const { return kv_groups_; }
  // A layer's place in the cache.
  struct CachePlace {
    int group;
    int index;  // into KvGroup::layers
  };
  const CachePlace& cache_place(int layer) const { return cache_places_[layer]; }
  const DecoderWeights& weights() const { return weights_; }
  const Backend& backend() const { return backend_; }
  int max_tokens() const { return max_tokens_; }
  int max_positions() const { return max_positions_; }

  // Copies blocks, writes K and V of every token whose slot is not -1 and the logits of batch.logit_tokens. pools: one
  // per KV group.
  void forward(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools);

 private:
  void check(const ForwardBatch& batch, std::span<KvPool* const> pools) const;
  void copy_blocks(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools);
  void attention_block(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools, int layer);
  void write_cache(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools, int layer, float* qkv);
  void attend(Queue& queue, const ForwardBatch::Rows& rows, std::span<KvPool* const> pools, int layer,
              const float* qkv);
  void add_attention_output(Queue& queue, int num_tokens, const LayerWeights& weights, const float* x, float* scratch);
  void last_attention_block(Queue& queue, const ForwardBatch& batch, std::span<KvPool* const> pools);
  void gather(Queue& queue, const float* x, int dim, const ForwardBatch& batch, float* out);
  void feed_forward(Queue& queue, const ForwardBatch& batch, int num_tokens, int layer);
  void mlp_block(Queue& queue, const ForwardBatch& batch, int num_tokens, int layer);
  void experts_block(Queue& queue, int num_tokens, const LayerWeights& weights);
  void write_logits(Queue& queue, const ForwardBatch& batch);
  LinearParams input_linear(const LinearWeights& linear, const DeviceVector& norm, int num_tokens, float* y) const;
  const OutputScreen* screen(const ForwardBatch& batch) const;
  const PackedWeight* after_layer(const ForwardBatch& batch, int layer) const;
  void add_residual(Queue& queue, const DeviceVector& post_norm, int num_tokens, float* y);
  void add_output(Queue& queue, LinearParams linear, const DeviceVector& post_norm, float* scratch);
  const float* rope_table(LayerRope rope) const;

  ModelConfig config_;
  Backend& backend_;
  int max_tokens_;
  int max_positions_;
  int q_width_, kv_width_, qkv_width_;
  float attention_scale_;
  std::vector<KvGroup> kv_groups_;
  std::vector<CachePlace> cache_places_;  // [num_layers]
  DecoderWeights weights_;
  std::unique_ptr<DeviceMemory> rope_, local_rope_;
  std::unique_ptr<DeviceMemory>
      x_;  // [max_tokens, max(q_width, hidden)]: the residual stream; trades places with mixed_
  std::unique_ptr<DeviceMemory> projected_;  // [max_tokens, max(qkv_width, 2 * intermediate, hidden)]
  std::optional<MoeBlock> moe_;
  std::unique_ptr<DeviceMemory> mixed_;  // [max_tokens, max(q_width, hidden)]: attention's output
};

}  // namespace octavo
