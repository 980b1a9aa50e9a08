#include "backend/cuda/launches.h"
#include "backend/cuda/product_args.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {

// Blocks of few_tokens_product read activations once for every 16 rows, those of many_tokens_product once for 128, but
// there are 16 times fewer of them. They are worth it where they leave few multiprocessors idle.
int tokens_per_block(WeightFormat format, int m, int n, const DeviceProperties& device) {
  if (m <= 8 || format == WeightFormat::kF32) return 8;
  if (m <= 16) return 16;
  if (m <= 32) return 32;
  const int64_t blocks = int64_t{ceil_div(n, 128)} * ceil_div(m, 64);
  return blocks * 4 < int64_t{device.multiprocessors} * 3 ? 32 : 64;
}

void launch_product(WeightFormat format, const Launch& launch, const ProductArgs& args, ProductGrid grid) {
#define OCTAVO_PRODUCT(f)  \
  case WeightFormat::k##f: \
    return launch_product<WeightFormat::k##f>(launch, args, grid);
  switch (format) {
    OCTAVO_PRODUCT(F32)
    OCTAVO_PRODUCT(F16)
    OCTAVO_PRODUCT(BF16)
    OCTAVO_PRODUCT(Q4_0)
    OCTAVO_PRODUCT(Q4_1)
    OCTAVO_PRODUCT(Q5_0)
    OCTAVO_PRODUCT(Q5_1)
    OCTAVO_PRODUCT(Q8_0)
    OCTAVO_PRODUCT(Q2_K)
    OCTAVO_PRODUCT(Q3_K)
    OCTAVO_PRODUCT(Q4_K)
    OCTAVO_PRODUCT(Q5_K)
    OCTAVO_PRODUCT(Q6_K)
    OCTAVO_PRODUCT(IQ4_NL)
    OCTAVO_PRODUCT(IQ4_XS)
    OCTAVO_PRODUCT(MXFP4)
    OCTAVO_PRODUCT(Int4x32)
    OCTAVO_PRODUCT(Int4x128)
    OCTAVO_PRODUCT(Int8x32)
    OCTAVO_PRODUCT(Int8x128)
    OCTAVO_PRODUCT(F8x32)
    OCTAVO_PRODUCT(F8x128)
  }
#undef OCTAVO_PRODUCT
  throw Error(ErrorCode::kInternal, "weight", cat("a product in format ", static_cast<int>(format)));
}

void set_input(ProductArgs& args, const InputForm& form, int rows, int k, const std::byte* input) {
  const InputParts parts = input_parts(form, rows, k, const_cast<std::byte*>(input));
  args.x = reinterpret_cast<const uint16_t*>(parts.rows);
  args.x_scale = parts.scale;
  args.x_sums = parts.sums;
  args.slabs = slabs_of(k);
}

void product(const Launch& launch, const ProductParams& p) {
  const WeightView& weight = *p.weight;
  ProductArgs args;
  args.weight = {weight.codes, weight.scales, p.bias};
  set_input(args, input_form(weight), p.m, weight.k, p.input);
  args.y = p.y;
  args.ldy = p.ldy;
  args.m = p.m;
  args.n = weight.n;
  args.accumulate = p.accumulate;
  const int tokens = tokens_per_block(weight.format, p.m, weight.n, *launch.device);
  launch_product(weight.format, launch, args, {tokens, ceil_div(p.m, tokens)});
}

}  // namespace octavo::cuda
