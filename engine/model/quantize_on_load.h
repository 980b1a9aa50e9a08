#pragma once
#include <memory>
#include <string>

#include "model/weights.h"

namespace octavo {

// A checkpoint whose dense matrices are quantized while they are packed: "q8" to q8_0, "q4" to q4_1 with the embedding
// and the head in q8_0. Vectors, matrices with rows of no multiple of 32 weights and what is quantized already stay as
// they are. Error(kInvalidArgument, "quantization", ...) for another name.
std::unique_ptr<WeightFiles> quantize_on_load(std::shared_ptr<WeightFiles> files, const std::string& quantization);

}  // namespace octavo
