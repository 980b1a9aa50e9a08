// GGUF files: header, metadata of every type, tensors and their bytes.
#include "model/gguf.h"

#include <array>

#include "base/errors.h"
#include "memory_file.h"
#include "model/open_weights.h"
#include "model_bytes.h"
#include "target.h"

namespace octavo::fuzz {

namespace {

constexpr std::array<std::string_view, 8> kKeys = {
    "general.architecture",  "general.alignment",     "llama.block_count",           "llama.attention.head_count",
    "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.bos_token_id", "x"};
constexpr std::array<std::string_view, 6> kTensors = {"token_embd.weight",   "output_norm.weight",
                                                      "blk.0.attn_q.weight", "blk.0.attn_k.weight",
                                                      "blk.1.ffn_up.bias",   "odd"};
constexpr std::array<size_t, 13> kScalarBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr uint32_t kString = 8, kArray = 9;

std::string random_text(Random& random) {
  std::string text(below(random, 12), 'a');
  for (char& c : text) c = static_cast<char>(chance(random, 90) ? 'a' + below(random, 26) : random());
  return text;
}

void write_value(Writer& out, Random& random, uint32_t type, int depth) {
  if (type == kString) {
    out.text(random_text(random));
  } else if (type == kArray) {
    const auto item = static_cast<uint32_t>(below(random, depth > 3 ? kString : 13));
    out.number(item, 4);
    const uint64_t count = below(random, 6);
    out.number(count, 8);
    for (uint64_t i = 0; i < count; ++i) write_value(out, random, item, depth + 1);
  } else {
    out.number(random(), kScalarBytes[type]);
  }
}

void write_pair(Writer& out, Random& random) {
  const std::string_view key = kKeys[below(random, kKeys.size())];
  out.text(chance(random, 80) ? std::string(key) : std::string(key) + random_text(random));
  if (key == "general.alignment") {
    out.number(4, 4);
    out.number(uint64_t{8} << below(random, 6), 4);
    return;
  }
  const auto type = static_cast<uint32_t>(below(random, 13));
  out.number(type, 4);
  write_value(out, random, type, 0);
}

// Writes the description of a tensor that lies at `offset`; how many bytes it takes.
uint64_t write_tensor(Writer& out, Random& random, size_t number, uint64_t offset) {
  out.text(std::string(kTensors[number % kTensors.size()]) + (chance(random, 95) ? std::to_string(number) : ""));
  uint32_t id = 0;
  const GgmlType* type = nullptr;
  while (!type) type = find_ggml_type(id = static_cast<uint32_t>(chance(random, 50) ? 0 : below(random, 42)));
  const uint64_t dims = 1 + below(random, 3);
  out.number(dims, 4);
  uint64_t elements = static_cast<uint64_t>(type->block) * (1 + below(random, 3));
  out.number(elements, 8);
  for (uint64_t d = 1; d < dims; ++d) {
    const uint64_t size = 1 + below(random, 4);
    out.number(size, 8);
    elements *= size;
  }
  out.number(id, 4);
  out.number(offset, 8);
  return elements / static_cast<uint64_t>(type->block) * static_cast<uint64_t>(type->block_bytes);
}

void read_value(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    volatile char last = text->empty() ? 'x' : text->back();
    static_cast<void>(last);
  } else if (const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value)) {
    for (size_t i = 0; i < (*array)->size; ++i) read_value((*array)->at(i));
  }
}

}  // namespace

std::vector<uint8_t> make_input(Random& random) {
  Writer out;
  out.bytes("GGUF");
  out.number(chance(random, 95) ? 3 : below(random, 5), 4);
  const uint64_t tensors = below(random, 6), pairs = below(random, 6);
  out.number(tensors, 8);
  out.number(pairs, 8);
  for (uint64_t i = 0; i < pairs; ++i) write_pair(out, random);
  uint64_t offset = 0;
  for (uint64_t i = 0; i < tensors; ++i) {
    offset += write_tensor(out, random, i, offset);
    offset = (offset + 255) / 256 * 256;
  }
  out.zeros((256 - out.size() % 256) % 256 + offset);
  return out.mutated(random, chance(random, 10) ? 0 : 1 + static_cast<int>(below(random, 5)));
}

std::optional<std::string> read_input(std::span<const uint8_t> input) {
  const MemoryFile file(input);
  try {
    const GgufFile gguf(file.path());
    for (const auto& [key, value] : gguf.metadata()) read_value(value);
    read_all(*open_gguf_weights(gguf, {{"token_embd", "model.embed_tokens"}, {"blk.*.attn_q", "layers.*.q_proj"}}));
  } catch (const Error& error) {
    return std::string(error_code_name(error.code()));
  }
  return std::nullopt;
}

}  // namespace octavo::fuzz
