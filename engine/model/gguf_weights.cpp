#include <array>
#include <limits>
#include <string_view>

#include "base/errors.h"
#include "base/format.h"
#include "model/open_weights.h"
#include "model/tensor_table.h"

namespace octavo {

namespace {

struct Architecture {
  std::string_view name;
  bool interleaved_qk;  // the writer interleaves the halves of each q and k head
};

constexpr Architecture kArchitectures[] = {
    {"llama", true},
};

struct NamePair {
  std::string_view gguf;
  std::string_view hugging_face;
};

constexpr NamePair kModelNames[] = {
    {"token_embd.", "model.embed_tokens."},
    {"output_norm.", "model.norm."},
    {"output.", "lm_head."},
};

constexpr NamePair kLayerNames[] = {
    {"attn_norm.", "input_layernorm."},    {"attn_q.", "self_attn.q_proj."},
    {"attn_k.", "self_attn.k_proj."},      {"attn_v.", "self_attn.v_proj."},
    {"attn_output.", "self_attn.o_proj."}, {"ffn_norm.", "post_attention_layernorm."},
    {"ffn_gate.", "mlp.gate_proj."},       {"ffn_up.", "mlp.up_proj."},
    {"ffn_down.", "mlp.down_proj."},
};

constexpr std::string_view kLayerPrefix = "blk.";

// A name without a counterpart stays as it is.
std::string hugging_face_name(const std::string& name) {
  for (const NamePair& pair : kModelNames) {
    if (name.starts_with(pair.gguf)) return cat(pair.hugging_face, name.substr(pair.gguf.size()));
  }
  const size_t dot = name.find('.', kLayerPrefix.size());
  if (!name.starts_with(kLayerPrefix) || dot == std::string::npos) return name;
  const std::string layer = name.substr(kLayerPrefix.size(), dot - kLayerPrefix.size());
  const std::string rest = name.substr(dot + 1);
  for (const NamePair& pair : kLayerNames) {
    if (rest.starts_with(pair.gguf)) {
      return cat("model.layers.", layer, ".", pair.hugging_face, rest.substr(pair.gguf.size()));
    }
  }
  return name;
}

const Architecture& find_architecture(const GgufFile& gguf) {
  const std::string& path = gguf.file()->path();
  const auto name = gguf.find_string("general.architecture");
  if (!name) {
    throw Error(ErrorCode::kCorruptFile, "general.architecture", cat(path, ": metadata has no general.architecture"));
  }
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == *name) return architecture;
    known += cat(known.empty() ? "" : ", ", architecture.name);
  }
  throw Error(ErrorCode::kUnsupported, "general.architecture",
              cat(path, ": architecture ", *name, " is not supported; supported: ", known));
}

int head_count(const GgufFile& gguf, const std::string& key, int missing) {
  const auto count = gguf.find_unsigned(key);
  if (!count) return missing;
  if (*count == 0 || *count > std::numeric_limits<int>::max()) {
    throw Error(ErrorCode::kCorruptFile, key, cat(gguf.file()->path(), ": ", key, " is ", *count, ", out of range"));
  }
  return static_cast<int>(*count);
}

}  // namespace

std::vector<std::string> gguf_architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

std::unique_ptr<WeightFiles> open_gguf_weights(const GgufFile& gguf) {
  const Architecture& architecture = find_architecture(gguf);
  const int heads = head_count(gguf, cat(architecture.name, ".attention.head_count"), 1);
  const int kv_heads = head_count(gguf, cat(architecture.name, ".attention.head_count_kv"), heads);
  auto table = std::make_unique<TensorTable>();
  for (const GgufTensor& t : gguf.tensors()) {
    if (!t.type->format) {
      throw Error(ErrorCode::kUnsupported, t.name,
                  cat(gguf.file()->path(), ": tensor ", t.name, " has type ", t.type->name,
                      "; supported: ", supported_formats()));
    }
    StoredTensor stored;
    stored.info = {hugging_face_name(t.name), weight_format_info(*t.type->format).name, t.shape, t.bytes};
    stored.format = t.type->format;
    stored.data = t.data;
    stored.file = gguf.file();
    if (architecture.interleaved_qk && t.name.starts_with(kLayerPrefix)) {
      if (t.name.find(".attn_q.") != std::string::npos) stored.interleaved_heads = heads;
      if (t.name.find(".attn_k.") != std::string::npos) stored.interleaved_heads = kv_heads;
    }
    table->add(std::move(stored));
  }
  return table;
}

}  // namespace octavo
