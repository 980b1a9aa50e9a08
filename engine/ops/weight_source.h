#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace octavo {

// How a matrix lies in its file. The names are GGUF's; dense formats are shared with safetensors.
enum class WeightFormat : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0 };

struct WeightFormatInfo {
  const char* name;
  int block;  // weights per block along k
  int block_bytes;
};

constexpr WeightFormatInfo weight_format_info(WeightFormat f) {
  switch (f) {
    case WeightFormat::kF32:
      return {"f32", 1, 4};
    case WeightFormat::kF16:
      return {"f16", 1, 2};
    case WeightFormat::kBF16:
      return {"bf16", 1, 2};
    case WeightFormat::kQ4_0:
      return {"q4_0", 32, 18};
    case WeightFormat::kQ4_1:
      return {"q4_1", 32, 20};
    case WeightFormat::kQ5_0:
      return {"q5_0", 32, 22};
    case WeightFormat::kQ5_1:
      return {"q5_1", 32, 24};
    case WeightFormat::kQ8_0:
      return {"q8_0", 32, 34};
  }
  return {"?", 1, 0};
}

// A row-major matrix [n, k] as it lies in a mapped file or a torch tensor. Row r starts at data + row(r) * row_bytes.
struct MatrixSource {
  std::string name;
  WeightFormat format = WeightFormat::kF32;
  int n = 0;
  int k = 0;
  const std::byte* data = nullptr;
  size_t row_bytes = 0;
  std::vector<int32_t>
      row_order;  // empty: identity. Row r of the result is row row_order[r] of the file (q/k un-permutation)
};

}  // namespace octavo
