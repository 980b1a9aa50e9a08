#include "backend/cuda/kernels/float_product.cuh"
#include "backend/cuda/kernels/launch_product.cuh"

namespace octavo::cuda {

template void launch_product<WeightFormat::kF16>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kBF16>(const Launch&, const ProductArgs&, ProductGrid);

size_t dense_product_workspace(const WorkspaceLimits&, const DeviceProperties&) { return 0; }

void dense_product(const Launch& launch, const ProductParams& p) {
  const WeightView& weight = *p.weight;
  if (weight.format != WeightFormat::kF32) return quantized_product(launch, p);
  FloatProductArgs args;
  args.w = reinterpret_cast<const float*>(weight.codes);
  args.x = reinterpret_cast<const float*>(p.input);
  args.bias = p.bias;
  args.y = p.y;
  args.ldy = p.ldy;
  args.m = p.m;
  args.n = weight.n;
  args.slabs = slabs_of(weight.k);
  args.accumulate = p.accumulate;
  const dim3 blocks(ceil_div(weight.n, kFloatRows * kFloatWarps), ceil_div(p.m, kFloatTokens));
  cuda::launch(float_product, blocks, dim3(32 * kFloatWarps), 0, launch.stream, args);
}

}  // namespace octavo::cuda
