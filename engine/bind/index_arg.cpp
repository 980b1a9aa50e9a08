#include "index_arg.h"

#include <array>

namespace octavo {

IndexArg::IndexArg(nb::handle value, const char* name, int64_t lo, int64_t hi, const TensorPlace& place)
    : on_gpu_(place.kind == TensorPlace::kGpu && device_of(value) == place.name()) {
  if (on_gpu_) {
    tensor_ = read_tensor(value, name, std::array{DType::kI32}, 1, place);
  } else {
    host_ = index_tensor(value, name, lo, hi);
  }
}

}  // namespace octavo
