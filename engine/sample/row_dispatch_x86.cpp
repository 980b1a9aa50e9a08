#include "sample/row_kernels.h"

namespace octavo {

const RowKernels& avx2_row_kernels();

const RowKernels& row_kernels() {
  static const RowKernels& best = __builtin_cpu_supports("avx2") ? avx2_row_kernels() : baseline_row_kernels();
  return best;
}

}  // namespace octavo
