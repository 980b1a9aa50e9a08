#pragma once
#include "backend/cuda/launches.h"
#include "backend/cuda/weight_layout.h"

// What the kernels of kernels/product.cuh are launched with.
namespace octavo::cuda {

// One matrix, or the part of one that has one format.
struct ProductWeight {
  const std::byte* codes = nullptr;   // dense rows: the first one
  const std::byte* scales = nullptr;  // null where rows are dense
  const float* bias = nullptr;        // [n] or null
};

// Neighbouring rows of y that one expert has.
struct ExpertTile {
  int32_t expert, first, count;  // count 0: nothing to do
};

struct ProductArgs {
  ProductWeight weight;
  const DeviceExpert* experts = nullptr;  // instead of weight
  bool down = false;                      // which of an expert's matrices
  const ExpertTile* tiles = nullptr;      // [blocks along y], of at most as many rows as a block has tokens
  const int32_t* x_rows = nullptr;        // [m] row of x that a row of y is made of; null: the same
  const uint16_t* x = nullptr;            // [rows of x, slabs * kSlab] f16, bfloat16 or f32, fewer than 2^32 elements
  const float* x_scale = nullptr;         // [rows of x] what y is multiplied with; null: 1
  const float* x_sums = nullptr;          // [rows of x, slabs * 4] sums of 16 columns; null: no minima
  float* y = nullptr;                     // [m, n], row stride ldy
  int64_t ldy = 0;
  int m = 0;
  int n = 0;
  int slabs = 0;
  bool accumulate = false;  // y += instead of y =
};

// Tokens of a block, and blocks along the tokens.
struct ProductGrid {
  int tokens = 8;  // 8, 16, 32: few_tokens_product; 64: many_tokens_product; of f32 always 8: float_product
  int blocks = 0;
};
// What is fastest for m rows of one matrix with n outputs; bits do not depend on it.
int tokens_per_block(WeightFormat format, int m, int n, const DeviceProperties& device);

// Where prepare_input's parts lie: rows, then, of f16, their scales and sums.
struct InputParts {
  std::byte* rows = nullptr;
  float* scale = nullptr;
  float* sums = nullptr;
  size_t bytes = 0;
};
InputParts input_parts(const InputForm& form, int m, int k, std::byte* at);
void set_input(ProductArgs& args, const InputForm& form, int rows, int k, const std::byte* input);

// Defined in kernels/launch_product.cuh, for f32 beside the other dense formats.
template <WeightFormat kFormat>
void launch_product(const Launch& launch, const ProductArgs& args, ProductGrid grid);
template <>
void launch_product<WeightFormat::kF32>(const Launch& launch, const ProductArgs& args, ProductGrid grid);
void launch_product(WeightFormat format, const Launch& launch, const ProductArgs& args, ProductGrid grid);

}  // namespace octavo::cuda
