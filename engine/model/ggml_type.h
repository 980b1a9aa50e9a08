#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "ops/weight_source.h"

namespace octavo {

// A tensor type of the GGUF format: how many weights and bytes a block has, and the engine's name for it if it can
// be read.
struct GgmlType {
  uint32_t id;
  const char* name;
  int block;
  int block_bytes;
  std::optional<WeightFormat> format;
};

// Null for an id that GGUF does not define (or no longer defines).
const GgmlType* find_ggml_type(uint32_t id);

std::string supported_formats();  // "f32, f16, ..." for messages

}  // namespace octavo
