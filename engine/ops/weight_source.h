#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace octavo {

// How a matrix lies in its file. The names are GGUF's; dense formats are shared with safetensors.
enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  // What other quantized checkpoints are rewritten to, block by block: an f32 scale, kInt4 then a zero point of 8 bits,
  // then 32 or 128 codes. w = scale * (code - zero), nibbles lie as in q4_0; scale * code, signed; scale * e4m3 value.
  kInt4x32,
  kInt4x128,
  kInt8x32,
  kInt8x128,
  kF8x32,
  kF8x128,
};
inline constexpr int kWeightFormats = 22;

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
    case WeightFormat::kQ2_K:
      return {"q2_k", 256, 84};
    case WeightFormat::kQ3_K:
      return {"q3_k", 256, 110};
    case WeightFormat::kQ4_K:
      return {"q4_k", 256, 144};
    case WeightFormat::kQ5_K:
      return {"q5_k", 256, 176};
    case WeightFormat::kQ6_K:
      return {"q6_k", 256, 210};
    case WeightFormat::kIQ4_NL:
      return {"iq4_nl", 32, 18};
    case WeightFormat::kIQ4_XS:
      return {"iq4_xs", 256, 136};
    case WeightFormat::kMXFP4:
      return {"mxfp4", 32, 17};
    case WeightFormat::kInt4x32:
      return {"int4x32", 32, 21};
    case WeightFormat::kInt4x128:
      return {"int4x128", 128, 69};
    case WeightFormat::kInt8x32:
      return {"int8x32", 32, 36};
    case WeightFormat::kInt8x128:
      return {"int8x128", 128, 132};
    case WeightFormat::kF8x32:
      return {"f8x32", 32, 36};
    case WeightFormat::kF8x128:
      return {"f8x128", 128, 132};
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
  // A dense matrix may be quantized while it is packed, to q8_0 or q4_1 as GGUF defines them; k is a multiple of 32.
  std::optional<WeightFormat> pack_as;
  // Called when the rows in a range of the data have been read: their pages may go back. Empty: nothing to do.
  std::function<void(const std::byte* data, size_t bytes)> release;
  std::vector<int32_t> input_order;  // empty: identity. Column j of the file meets input feature input_order[j]
  std::vector<int32_t>
      row_order;  // empty: identity. Row r of the result is row row_order[r] of the file (q/k un-permutation)
};

}  // namespace octavo
