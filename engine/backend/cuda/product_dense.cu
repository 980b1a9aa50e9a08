#include "backend/cuda/kernels/float_product.cuh"
#include "backend/cuda/kernels/launch_product.cuh"

namespace octavo::cuda {

template void launch_product<WeightFormat::kF16>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kBF16>(const Launch&, const ProductArgs&, ProductGrid);

template <>
void launch_product<WeightFormat::kF32>(const Launch& launch, const ProductArgs& args, ProductGrid grid) {
  const dim3 blocks(ceil_div(args.n, kFloatRows * kFloatWarps), grid.blocks);
  cuda::launch(float_product, blocks, dim3(32 * kFloatWarps), 0, launch.stream, args);
}

}  // namespace octavo::cuda
