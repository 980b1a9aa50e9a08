#include "sample/row_kernels.h"

namespace octavo {

const RowKernels& row_kernels() { return baseline_row_kernels(); }

}  // namespace octavo
