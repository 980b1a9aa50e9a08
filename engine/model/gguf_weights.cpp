#include <string_view>

#include "base/errors.h"
#include "base/format.h"
#include "model/open_weights.h"
#include "model/tensor_table.h"

namespace octavo {

namespace {

// "blk.3.attn_q.weight" with {"blk.*.attn_q": "model.layers.*.self_attn.q_proj"}:
// "model.layers.3.self_attn.q_proj.weight". A name without a counterpart stays as it is.
std::string renamed(const std::string& name, const std::map<std::string, std::string>& names) {
  constexpr std::string_view kLayers = "blk.";
  const size_t kind = name.rfind('.');
  if (kind == std::string::npos) return name;
  std::string stem = name.substr(0, kind), layer;
  if (stem.starts_with(kLayers)) {
    const size_t end = stem.find('.', kLayers.size());
    if (end == std::string::npos) return name;
    layer = stem.substr(kLayers.size(), end - kLayers.size());
    stem = cat(kLayers, "*", stem.substr(end));
  }
  const auto found = names.find(stem);
  if (found == names.end()) return name;
  const std::string& to = found->second;
  const size_t star = to.find('*');
  if (star == std::string::npos) return to + name.substr(kind);
  return cat(to.substr(0, star), layer, to.substr(star + 1), name.substr(kind));
}

}  // namespace

std::unique_ptr<WeightFiles> open_gguf_weights(const GgufFile& gguf, const std::map<std::string, std::string>& names) {
  auto table = std::make_unique<TensorTable>();
  for (const GgufTensor& t : gguf.tensors()) {
    if (!t.type->format) {
      throw Error(ErrorCode::kUnsupported, t.name,
                  cat(gguf.file()->path(), ": tensor ", t.name, " has type ", t.type->name,
                      "; supported: ", supported_formats()));
    }
    StoredTensor stored;
    stored.info = {renamed(t.name, names), weight_format_info(*t.type->format).name, t.shape, t.bytes};
    stored.format = t.type->format;
    stored.data = t.data;
    stored.file = gguf.file();
    table->add(std::move(stored));
  }
  return table;
}

}  // namespace octavo
