#include "tiny_model.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "model/tensor_table.h"
#include "tensor/half.h"

using namespace octavo;

namespace {

void append(std::vector<uint8_t>& out, const void* data, size_t bytes) {
  const auto* first = static_cast<const uint8_t*>(data);
  out.insert(out.end(), first, first + bytes);
}

void append_q8_0(std::vector<uint8_t>& out, std::span<const float> block) {
  float largest = 0.0f;
  for (const float v : block) largest = std::max(largest, std::abs(v));
  const uint16_t scale = f32_to_f16(largest / 127.0f);
  append(out, &scale, sizeof scale);
  for (const float v : block) {
    const auto code = static_cast<int8_t>(std::lround(v / largest * 127.0f));
    append(out, &code, sizeof code);
  }
}

std::shared_ptr<std::vector<uint8_t>> encode(std::span<const float> values, WeightFormat format) {
  auto out = std::make_shared<std::vector<uint8_t>>();
  switch (format) {
    case WeightFormat::kQ8_0:
      for (size_t i = 0; i < values.size(); i += 32) append_q8_0(*out, values.subspan(i, 32));
      break;
    case WeightFormat::kBF16:
      for (const float v : values) {
        const uint16_t half = f32_to_bf16(v);
        append(*out, &half, sizeof half);
      }
      break;
    default:
      append(*out, values.data(), values.size_bytes());
  }
  return out;
}

}  // namespace

ModelConfig tiny_config(int window) {
  ModelConfig c;
  c.architecture = "llama";
  c.num_layers = 2;
  c.hidden = 64;
  c.intermediate = 128;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.vocab = 96;
  c.max_positions = 512;
  c.tied_embeddings = true;
  c.rope.rotary_dim = 16;
  if (window > 0) c.layers = {LayerConfig{}, LayerConfig{window}};
  return c;
}

std::shared_ptr<WeightFiles> tiny_weights(const ModelConfig& c, WeightFormat matrices) {
  auto table = std::make_shared<TensorTable>();
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    std::vector<float> values(count, 1.0f);
    const bool matrix = shape.size() > 1;
    if (matrix)
      for (float& v : values) v = normal(random);
    const WeightFormat format = matrix ? matrices : WeightFormat::kF32;
    const auto bytes = encode(values, format);
    StoredTensor t;
    t.info = {name, weight_format_info(format).name, std::move(shape), bytes->size()};
    t.format = format;
    t.data = reinterpret_cast<const std::byte*>(bytes->data());
    t.owner = bytes;
    table->add(std::move(t));
  };
  add("model.embed_tokens.weight", {c.vocab, c.hidden});
  add("model.norm.weight", {c.hidden});
  const int64_t q = int64_t{c.heads} * c.head_dim;
  const int64_t kv = int64_t{c.kv_heads} * c.head_dim;
  for (int i = 0; i < c.num_layers; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".";
    add(p + "input_layernorm.weight", {c.hidden});
    add(p + "post_attention_layernorm.weight", {c.hidden});
    add(p + "self_attn.q_proj.weight", {q, c.hidden});
    add(p + "self_attn.k_proj.weight", {kv, c.hidden});
    add(p + "self_attn.v_proj.weight", {kv, c.hidden});
    add(p + "self_attn.o_proj.weight", {c.hidden, q});
    add(p + "mlp.gate_proj.weight", {c.intermediate, c.hidden});
    add(p + "mlp.up_proj.weight", {c.intermediate, c.hidden});
    add(p + "mlp.down_proj.weight", {c.hidden, c.intermediate});
  }
  return table;
}

TokenTable tiny_table(int vocab) {
  TokenTable t;
  for (int i = 0; i <= vocab; ++i) t.offsets.push_back(i);
  for (int i = 0; i < vocab; ++i) t.bytes.push_back(static_cast<char>(32 + i % 95));
  t.special.assign(vocab, 0);
  return t;
}
