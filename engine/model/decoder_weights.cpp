#include "model/decoder_weights.h"

#include <cstring>
#include <list>
#include <set>

#include "base/errors.h"
#include "base/format.h"
#include "model/dense.h"
#include "model/fused_experts.h"

namespace octavo {

namespace {

struct Part {
  std::string name;  // without ".weight" and ".bias"
  int rows;
  int interleaved_heads = 0;  // > 0: the rows of each head lie as rope_interleaved says
  bool exact = false;         // never quantized while it is loaded
  // Not empty: one expert's rows in the tensor `stack` of all experts. With a step above 0 that is a tensor as
  // fused_experts.h describes it.
  std::string stack = {};
  int expert = 0;
  int first_row = 0;
  int step = 0;
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

  DecoderWeights load(bool screen_head) {
    // The largest matrices first: while one is packed, its file pages count too, and nothing else is resident yet.
    weights_.embedding = matrix({{names_.embedding, config_.vocab}}, config_.hidden);
    if (!head_is_tied()) weights_.head = matrix({{names_.head, config_.vocab}}, config_.hidden);
    if (screen_head) make_screen();
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

  // Scaled or capped logits may be equal where they were not before.
  void make_screen() {
    if (config_.logit_scale != 1.0f || config_.logit_softcap != 0.0f) return;
    weights_.screen = backend_.make_screen(queue_, weights_.head_matrix());
    if (weights_.screen) weights_.bytes += weights_.screen->bytes();
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
    Part router{at + names_.router, moe.experts};
    router.exact = true;
    out.router = linear({router}, config_.hidden, moe.router_bias);
    out.experts.resize(moe.experts);
    for (int e = 0; e < moe.experts; ++e) {
      out.experts[e].gate_up =
          linear({expert_part(at, e, names_.expert_gate, moe.intermediate, names_.expert_gate_up, 0, 2),
                  expert_part(at, e, names_.expert_up, moe.intermediate, names_.expert_gate_up, 1, 2)},
                 config_.hidden, moe.bias);
      out.experts[e].down = linear({expert_part(at, e, names_.expert_down, config_.hidden, names_.expert_down, 0, 1)},
                                   moe.intermediate, moe.bias);
    }
    std::vector<ExpertMatrices> matrices;
    for (const ExpertWeights& expert : out.experts) {
      matrices.push_back(
          {expert.gate_up.weight.get(), expert.gate_up.bias_data(), expert.down.weight.get(), expert.down.bias_data()});
    }
    out.table = backend_.make_expert_table(queue_, std::move(matrices));
    if (moe.shared_intermediate == 0) return;
    out.shared.gate_up = linear({{at + names_.shared_expert_gate, moe.shared_intermediate},
                                 {at + names_.shared_expert_up, moe.shared_intermediate}},
                                config_.hidden, moe.bias);
    out.shared.down = linear({{at + names_.shared_expert_down, config_.hidden}}, moe.shared_intermediate, moe.bias);
    if (moe.shared_gate) out.shared_gate = linear({{at + names_.shared_gate, 1}}, config_.hidden, false);
  }

  // A projection of one expert: a tensor of its own, or a part of one that holds all experts.
  Part expert_part(const std::string& at, int expert, const std::string& name, int rows, const std::string& fused,
                   int first_row, int step) const {
    Part part{cat(at, names_.experts, expert, ".", name), rows};
    part.expert = expert;
    const std::string stack = at + names_.experts + name;
    if (files_.has(stack + ".weight")) {
      part.stack = stack;
    } else if (has_fused_experts(files_, at + names_.experts + fused)) {
      part.stack = at + names_.experts + fused;
      part.first_row = first_row;
      part.step = step;
    }
    return part;
  }

  // transformers stores them as a bare parameter, GGUF as a weight.
  std::string sinks_name(const std::string& at) const {
    const std::string bare = at + names_.sinks;
    return files_.has(bare) ? bare : bare + ".weight";
  }

  MatrixSource weight(const Part& part, int k) {
    if (part.step > 0) {
      for (const std::string& name : fused_expert_tensors(files_, part.stack)) used_.insert(name);
      const ExpertRows rows{part.expert, config_.moe.experts, part.first_row, part.step, part.rows, k};
      return fused_expert(files_, part.stack, rows, copies_.emplace_back());
    }
    MatrixSource out = stored(part, ".weight", k);
    if (part.exact) out.pack_as.reset();
    return out;
  }

  std::vector<float> bias(const Part& part) {
    if (part.step == 0) return take(stored(part, ".bias", 1), last_reader(part));
    const std::string name = part.stack + "_bias";
    used_.insert(name);
    MatrixSource out = files_.stacked(name, part.expert, config_.moe.experts, part.rows * part.step, 1);
    out.n = part.rows;
    for (int row = 0; row < part.rows; ++row) out.row_order.push_back(part.first_row + part.step * row);
    return take(out, last_reader(part));
  }

  MatrixSource stored(const Part& part, const char* kind, int k) {
    const std::string name = (part.stack.empty() ? part.name : part.stack) + kind;
    used_.insert(name);
    if (!part.stack.empty()) return files_.stacked(name, part.expert, config_.moe.experts, part.rows, k);
    MatrixSource out = files_.matrix(name, part.rows, k);
    if (part.interleaved_heads > 0) {
      out.row_order = undo_interleave(part.rows, part.interleaved_heads, config_.rope.rotary_dim);
    }
    return out;
  }

  // No later part needs the tensor that holds this one.
  bool last_reader(const Part& part) const {
    if (part.stack.empty()) return true;
    return part.expert + 1 == config_.moe.experts && part.first_row + 1 >= part.step;
  }

  void release_weight(const Part& part) {
    if (!last_reader(part)) return;
    if (part.step == 0) return files_.release((part.stack.empty() ? part.name : part.stack) + ".weight");
    for (const std::string& name : fused_expert_tensors(files_, part.stack)) files_.release(name);
  }

  LinearWeights linear(const std::vector<Part>& parts, int k, bool with_bias) {
    LinearWeights out;
    out.weight = matrix(parts, k);
    if (!with_bias) return out;
    std::vector<float> all;
    for (const Part& part : parts) {
      const std::vector<float> values = bias(part);
      all.insert(all.end(), values.begin(), values.end());
    }
    out.bias = DeviceVector(backend_, queue_, all);
    const float* at = out.bias.data();
    for (const Part& part : parts) {
      weights_.places[part.name + ".bias"] = {nullptr, 0, part.rows, at};
      at += part.rows;
    }
    return out;
  }

  std::unique_ptr<PackedWeight> matrix(const std::vector<Part>& parts, int k) {
    std::vector<MatrixSource> sources;
    for (const Part& part : parts) sources.push_back(weight(part, k));
    auto packed = backend_.pack(queue_, sources);
    int first_row = 0;
    for (const Part& part : parts) {
      weights_.places[part.name + ".weight"] = {packed.get(), first_row, part.rows, nullptr};
      first_row += part.rows;
      release_weight(part);
    }
    copies_.clear();
    weights_.bytes += packed->bytes();
    return packed;
  }

  DeviceVector norm(const std::string& name, int size) { return vector(name + ".weight", size, config_.norm_offset); }

  DeviceVector vector(const std::string& name, int size, float offset = 0.0f) {
    used_.insert(name);
    std::vector<float> values = take(files_.matrix(name, 1, size), true);
    if (offset != 0.0f) {
      for (float& value : values) value += offset;
    }
    DeviceVector out(backend_, queue_, values);
    weights_.places[name] = {nullptr, 0, size, out.data()};
    return out;
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
      if (used_.contains(name) || derived || !name.starts_with(config_.part)) continue;
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
  std::list<std::vector<std::byte>> copies_;  // of experts in another layout, until they are packed
  std::set<std::string> used_;
};

}  // namespace

const WeightPlace& DecoderWeights::find(const std::string& name) const {
  const auto it = places.find(name);
  if (it == places.end()) throw Error(ErrorCode::kNotFound, name, cat("the decoder has no tensor ", name));
  return it->second;
}

DecoderWeights load_decoder_weights(const ModelConfig& config, WeightFiles& files, Backend& backend, Queue& queue,
                                    bool screen_head) {
  return Loader(config, files, backend, queue).load(screen_head);
}

}  // namespace octavo
