#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace octavo {

// A matrix [n, k] in a backend's own layout. Made by Backend::pack, used by Backend::linear and Backend::embed.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  int n() const { return n_; }                       // output features
  int k() const { return k_; }                       // input features
  virtual size_t bytes() const = 0;                  // resident size
  virtual std::string format() const = 0;            // "q4_1", "bf16", ...
  // Row `row` as f32, exactly the values that linear() multiplies with. out: [k]
  virtual void dequantize_row(int row, float* out) const = 0;

 protected:
  PackedWeight(int n, int k) : n_(n), k_(k) {}
  int n_;
  int k_;
};

}  // namespace octavo
