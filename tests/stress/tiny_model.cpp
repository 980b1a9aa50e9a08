#include "tiny_model.h"

#include <random>
#include <string>
#include <vector>

#include "model/tensor_table.h"

using namespace octavo;

ModelConfig tiny_config() {
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
  return c;
}

std::shared_ptr<WeightFiles> tiny_weights(const ModelConfig& c) {
  auto table = std::make_shared<TensorTable>();
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    auto values = std::make_shared<std::vector<float>>(count, 1.0f);
    if (shape.size() > 1)
      for (float& v : *values) v = normal(random);
    StoredTensor t;
    t.info = {name, "f32", std::move(shape), values->size() * sizeof(float)};
    t.format = WeightFormat::kF32;
    t.data = reinterpret_cast<const std::byte*>(values->data());
    t.owner = values;
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
