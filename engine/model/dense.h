#pragma once
#include <vector>

#include "ops/weight_source.h"

namespace octavo {

// The elements of a dense matrix (norms, biases) as f32, rows in their result order. Error(kUnsupported, name, ...)
// for a quantized one.
std::vector<float> to_f32(const MatrixSource& source);

}  // namespace octavo
