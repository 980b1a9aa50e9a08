#include "sample/row_kernels_impl.h"

namespace octavo {

const RowKernels& baseline_row_kernels() {
  static constexpr RowKernels kernels = {"baseline", scan, sum_exp, weigh, count_greater};
  return kernels;
}

}  // namespace octavo
