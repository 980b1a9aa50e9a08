// Compiled with -mavx2.
#include "sample/row_kernels_impl.h"

namespace octavo {

const RowKernels& avx2_row_kernels();

const RowKernels& avx2_row_kernels() {
  static constexpr RowKernels kernels = {"avx2", scan, sum_exp, weigh, count_greater};
  return kernels;
}

}  // namespace octavo
