#pragma once
#include "ops/weight_source.h"

namespace octavo {

// Throws what is wrong with a part of a matrix with k columns, by its name.
void check_source(const MatrixSource& part, int k);

}  // namespace octavo
