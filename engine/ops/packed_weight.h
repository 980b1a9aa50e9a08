#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace octavo {

// Dense rows as they lie in memory, in panels of two halves of `half_rows` rows: element i of row r of half h lies at
// i * 2 * half_rows + h * half_stride + r * row_stride elements from the panel's begin.
struct DensePanels {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  int panels = 0;
  int half_rows = 0;
  int half_stride = 0;
  int row_stride = 0;
  size_t panel_bytes = 0;  // from one panel to the next
};

class Backend;

// A matrix [n, k] in a backend's own layout. Made by Backend::pack, used by Backend::linear and Backend::embed.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  int n() const { return n_; }             // output features
  int k() const { return k_; }             // input features
  virtual size_t bytes() const = 0;        // resident size
  virtual std::string format() const = 0;  // "q4_1", "bf16", ...
  // The one that can multiply with it; null: each that reads host memory.
  virtual const Backend* backend() const { return nullptr; }
  // Row `row` as f32, exactly the values that linear() multiplies with. out: [k]
  virtual void dequantize_row(int row, float* out) const = 0;
  // The panels that hold rows [first_row, first_row + rows); empty where they are quantized or begin inside a panel.
  virtual std::optional<DensePanels> dense_panels(int first_row, int rows) const = 0;

 protected:
  PackedWeight(int n, int k) : n_(n), k_(k) {}
  int n_;
  int k_;
};

}  // namespace octavo
