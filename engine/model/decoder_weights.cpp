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
  int interleaved_heads = 0;  // > 0: the rows of each head lie as rope_interleaved says
  std::string stack = {};     // not empty: the tensor of `stack_count` such parts, of which it is number stack_index
  int stack_index = 0;
  int stack_count = 0;

  const std::string& stored() const { return stack.empty() ? name : stack; }
  bool last_of_stack() const { return stack.empty() || stack_index + 1 == stack_count; }
};

// Where the rows of `heads` heads lie whose first `rotary_dim` rows are pairs (2i, 2i + 1): row i of the halves that
// the engine rotates is row 2i, row rotary_dim / 2 + i is row 2i + 1.
std::vector<int32_t> undo_interleave(int rows, int heads, int rotary_dim) {
  const int head_dim = rows / heads, half = rotary_dim / 2;
  std::vector<int32_t> order(rows);
  for (int row = 0; row < rows; ++row) {
    const int i = row % head_dim;
    order[row] = i < rotary_dim ? row - i + 2 * (i % half) + i / half : row;
  }
  return order;
}

class Loader {
 public:
  Loader(const ModelConfig& config, WeightFiles& files, Backend& backend, Queue& queue)
      : config_(config), names_(config.names), files_(files), backend_(backend), queue_(queue) {}

  DecoderWeights load() {
    // The largest matrices first: while one is packed, its file pages count too, and nothing else is resident yet.
    weights_.embedding = matrix({{names_.embedding, config_.vocab}}, config_.hidden);
    if (!head_is_tied()) weights_.head = matrix({{names_.head, config_.vocab}}, config_.hidden);
    weights_.final_norm = norm(names_.final_norm, config_.hidden);
    weights_.layers.resize(config_.num_layers);
    for (int i = 0; i < config_.num_layers; ++i) load_layer(i, weights_.layers[i]);
    check_all_used();
    return std::move(weights_);
  }

 private:
  void load_layer(int index, LayerWeights& layer) {
    const std::string at = cat(names_.layers, index, ".");
    const int q_rows = config_.heads * config_.head_dim;
    const int kv_rows = config_.kv_heads * config_.head_dim;
    if (config_.pre_norm) layer.attention_norm = norm(at + names_.attention_norm, config_.hidden);
    layer.qkv = linear(qkv_parts(at, q_rows, kv_rows), config_.hidden, config_.attention_bias);
    if (config_.qk_norm == QkNorm::kHead) {
      layer.q_norm = norm(at + names_.q_norm, config_.head_dim);
      layer.k_norm = norm(at + names_.k_norm, config_.head_dim);
    } else if (config_.qk_norm == QkNorm::kTogether) {
      layer.q_norm = norm(at + names_.q_norm, q_rows);
      layer.k_norm = norm(at + names_.k_norm, kv_rows);
    }
    if (config_.attention_sinks) layer.sinks = vector(sinks_name(at), config_.heads);
    layer.out = linear({{at + names_.out, config_.hidden}}, q_rows, config_.attention_output_bias);
    if (config_.post_norm) layer.attention_post_norm = norm(at + names_.attention_post_norm, config_.hidden);
    if (config_.pre_norm) layer.mlp_norm = norm(at + names_.mlp_norm, config_.hidden);
    if (config_.has_experts(index)) {
      load_experts(at, layer.moe);
    } else {
      layer.gate_up = linear(gate_up_parts(at, config_.intermediate), config_.hidden, config_.mlp_bias);
      layer.down = linear({{at + names_.down, config_.hidden}}, config_.intermediate, config_.mlp_bias);
    }
    if (config_.post_norm) layer.mlp_post_norm = norm(at + names_.mlp_post_norm, config_.hidden);
  }

  std::vector<Part> qkv_parts(const std::string& at, int q_rows, int kv_rows) const {
    const bool mixed = config_.rope_interleaved;
    if (!mixed && files_.has(at + names_.qkv + ".weight")) return {{at + names_.qkv, q_rows + 2 * kv_rows}};
    return {{at + names_.q, q_rows, mixed ? config_.heads : 0},
            {at + names_.k, kv_rows, mixed ? config_.kv_heads : 0},
            {at + names_.v, kv_rows}};
  }

  std::vector<Part> gate_up_parts(const std::string& at, int rows) const {
    if (files_.has(at + names_.gate_up + ".weight")) return {{at + names_.gate_up, 2 * rows}};
    return {{at + names_.gate, rows}, {at + names_.up, rows}};
  }

  void load_experts(const std::string& at, MoeWeights& out) {
    const MoeConfig& moe = config_.moe;
    out.router = linear({{at + names_.router, moe.experts}}, config_.hidden, moe.router_bias);
    out.experts.resize(moe.experts);
    for (int e = 0; e < moe.experts; ++e) {
      const auto part = [&](const std::string& name, int rows) {
        Part p{cat(at, names_.experts, e, ".", name), rows};
        const std::string stack = at + names_.experts + name;
        if (files_.has(stack + ".weight")) p.stack = stack, p.stack_index = e, p.stack_count = moe.experts;
        return p;
      };
      out.experts[e].gate_up =
          linear({part(names_.expert_gate, moe.intermediate), part(names_.expert_up, moe.intermediate)}, config_.hidden,
                 moe.bias);
      out.experts[e].down = linear({part(names_.expert_down, config_.hidden)}, moe.intermediate, moe.bias);
    }
    if (moe.shared_intermediate == 0) return;
    out.shared.gate_up = linear({{at + names_.shared_expert_gate, moe.shared_intermediate},
                                 {at + names_.shared_expert_up, moe.shared_intermediate}},
                                config_.hidden, moe.bias);
    out.shared.down = linear({{at + names_.shared_expert_down, config_.hidden}}, moe.shared_intermediate, moe.bias);
    if (moe.shared_gate) out.shared_gate = linear({{at + names_.shared_gate, 1}}, config_.hidden, false);
  }

  // transformers stores them as a bare parameter, GGUF as a weight.
  std::string sinks_name(const std::string& at) const {
    const std::string bare = at + names_.sinks;
    return files_.has(bare) ? bare : bare + ".weight";
  }

  MatrixSource source(const Part& part, const char* kind, int k) {
    const std::string name = part.stored() + kind;
    MatrixSource out = part.stack.empty() ? files_.matrix(name, part.rows, k)
                                          : files_.stacked(name, part.stack_index, part.stack_count, part.rows, k);
    used_.insert(out.name);
    if (part.interleaved_heads > 0) {
      out.row_order = undo_interleave(part.rows, part.interleaved_heads, config_.rope.rotary_dim);
    }
    return out;
  }

  LinearWeights linear(const std::vector<Part>& parts, int k, bool with_bias) {
    LinearWeights out;
    out.weight = matrix(parts, k);
    if (!with_bias) return out;
    out.bias.reserve(out.weight->n());
    for (const Part& part : parts) {
      const float* at = out.bias.data() + out.bias.size();
      const std::vector<float> values = take(source(part, ".bias", 1), part.last_of_stack());
      out.bias.insert(out.bias.end(), values.begin(), values.end());
      weights_.places[part.name + ".bias"] = {nullptr, 0, part.rows, at};
    }
    return out;
  }

  std::unique_ptr<PackedWeight> matrix(const std::vector<Part>& parts, int k) {
    std::vector<MatrixSource> sources;
    for (const Part& part : parts) sources.push_back(source(part, ".weight", k));
    auto packed = backend_.pack(queue_, sources);
    int first_row = 0;
    for (const Part& part : parts) {
      weights_.places[part.name + ".weight"] = {packed.get(), first_row, part.rows, nullptr};
      first_row += part.rows;
      if (part.last_of_stack()) files_.release(part.stored() + ".weight");
    }
    weights_.bytes += packed->bytes();
    return packed;
  }

  std::vector<float> norm(const std::string& name, int size) {
    std::vector<float> values = vector(name + ".weight", size);
    for (float& value : values) value += config_.norm_offset;
    return values;
  }

  std::vector<float> vector(const std::string& name, int size) {
    used_.insert(name);
    std::vector<float> values = take(files_.matrix(name, 1, size), true);
    weights_.places[name] = {nullptr, 0, size, values.data()};
    return values;
  }

  std::vector<float> take(const MatrixSource& source, bool release) {
    std::vector<float> values = to_f32(source);
    if (release) files_.release(source.name);
    weights_.bytes += values.size() * sizeof(float);
    return values;
  }

  // A checkpoint may say that its head is tied and hold one all the same: a copy, or, as transformers has it, the
  // truth.
  bool head_is_tied() {
    const std::string embedding = names_.embedding + ".weight", head = names_.head + ".weight";
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
      const bool derived =
          name.ends_with(".rotary_emb.inv_freq") || name == "rope_freqs.weight" || name.starts_with("rope_factors_");
      if (used_.contains(name) || derived) continue;
      throw Error(ErrorCode::kUnsupported, name,
                  cat("the model has a tensor ", name, " that architecture ", config_.architecture,
                      " with this configuration does not use"));
    }
  }

  const ModelConfig& config_;
  const TensorNames& names_;
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
