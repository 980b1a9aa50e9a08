#include "model/decoder_weights.h"

#include <cstring>
#include <set>

#include "base/errors.h"
#include "base/format.h"
#include "model/dense.h"

namespace octavo {

namespace {

struct Part {
  std::string name;  // without ".weight" and ".bias"
  int rows;
};

class Loader {
 public:
  Loader(const ModelConfig& config, WeightFiles& files, Backend& backend, Queue& queue)
      : config_(config), files_(files), backend_(backend), queue_(queue) {}

  DecoderWeights load() {
    // The largest matrices first: while one is packed, its file pages count too, and nothing else is resident yet.
    weights_.embedding = matrix({{"model.embed_tokens", config_.vocab}}, config_.hidden);
    if (!head_is_tied()) weights_.head = matrix({{"lm_head", config_.vocab}}, config_.hidden);
    weights_.final_norm = norm("model.norm.weight");
    weights_.layers.resize(config_.num_layers);
    for (int i = 0; i < config_.num_layers; ++i) load_layer(cat("model.layers.", i, "."), weights_.layers[i]);
    check_all_used();
    return std::move(weights_);
  }

 private:
  void load_layer(const std::string& at, LayerWeights& layer) {
    const int q_rows = config_.heads * config_.head_dim;
    const int kv_rows = config_.kv_heads * config_.head_dim;
    const std::string attention = at + "self_attn.", mlp = at + "mlp.";
    layer.attention_norm = norm(at + "input_layernorm.weight");
    layer.qkv =
        linear({{attention + "q_proj", q_rows}, {attention + "k_proj", kv_rows}, {attention + "v_proj", kv_rows}},
               config_.hidden, config_.attention_bias);
    layer.out = linear({{attention + "o_proj", config_.hidden}}, q_rows, config_.attention_output_bias);
    layer.mlp_norm = norm(at + "post_attention_layernorm.weight");
    layer.gate_up = linear({{mlp + "gate_proj", config_.intermediate}, {mlp + "up_proj", config_.intermediate}},
                           config_.hidden, config_.mlp_bias);
    layer.down = linear({{mlp + "down_proj", config_.hidden}}, config_.intermediate, config_.mlp_bias);
  }

  LinearWeights linear(const std::vector<Part>& parts, int k, bool with_bias) {
    LinearWeights out;
    out.weight = matrix(parts, k);
    if (!with_bias) return out;
    out.bias.reserve(out.weight->n());
    for (const Part& part : parts) {
      const std::string name = part.name + ".bias";
      const float* at = out.bias.data() + out.bias.size();
      const std::vector<float> values = take_vector(name, part.rows, 1);
      out.bias.insert(out.bias.end(), values.begin(), values.end());
      weights_.places[name] = {nullptr, 0, part.rows, at};
    }
    return out;
  }

  std::unique_ptr<PackedWeight> matrix(const std::vector<Part>& parts, int k) {
    std::vector<MatrixSource> sources;
    for (const Part& part : parts) {
      sources.push_back(files_.matrix(part.name + ".weight", part.rows, k));
      used_.insert(part.name + ".weight");
    }
    auto packed = backend_.pack(queue_, sources);
    int first_row = 0;
    for (const Part& part : parts) {
      weights_.places[part.name + ".weight"] = {packed.get(), first_row, part.rows, nullptr};
      first_row += part.rows;
      files_.release(part.name + ".weight");
    }
    weights_.bytes += packed->bytes();
    return packed;
  }

  std::vector<float> norm(const std::string& name) {
    std::vector<float> values = take_vector(name, 1, config_.hidden);
    weights_.places[name] = {nullptr, 0, config_.hidden, values.data()};
    return values;
  }

  std::vector<float> take_vector(const std::string& name, int n, int k) {
    std::vector<float> values = to_f32(files_.matrix(name, n, k));
    used_.insert(name);
    files_.release(name);
    weights_.bytes += values.size() * sizeof(float);
    return values;
  }

  // A checkpoint may say that its head is tied and hold one all the same: a copy, or, as transformers has it, the
  // truth.
  bool head_is_tied() {
    const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
    if (!config_.tied_embeddings) return false;
    if (!files_.has(head)) return true;
    const MatrixSource a = files_.matrix(embedding, config_.vocab, config_.hidden);
    const MatrixSource b = files_.matrix(head, config_.vocab, config_.hidden);
    const bool equal = a.format == b.format && std::memcmp(a.data, b.data, a.row_bytes * a.n) == 0;
    files_.release(embedding);
    files_.release(head);
    if (equal) used_.insert(head);
    return equal;
  }

  // A tensor that the forward pass does not read means another model than the configuration describes.
  void check_all_used() const {
    for (const std::string& name : files_.names()) {
      const bool derived = name.ends_with(".rotary_emb.inv_freq") || name == "rope_freqs.weight";
      if (used_.contains(name) || derived) continue;
      throw Error(ErrorCode::kUnsupported, name,
                  cat("the model has a tensor ", name, " that architecture ", config_.architecture,
                      " with this configuration does not use"));
    }
  }

  const ModelConfig& config_;
  WeightFiles& files_;
  Backend& backend_;
  Queue& queue_;
  DecoderWeights weights_;
  std::set<std::string> used_;
};

}  // namespace

const WeightPlace& DecoderWeights::find(const std::string& name) const {
  const auto it = places.find(name);
  if (it == places.end()) throw Error(ErrorCode::kNotFound, name, cat("the decoder has no tensor ", name));
  return it->second;
}

DecoderWeights load_decoder_weights(const ModelConfig& config, WeightFiles& files, Backend& backend, Queue& queue) {
  return Loader(config, files, backend, queue).load();
}

}  // namespace octavo
