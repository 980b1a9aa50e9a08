#pragma once
#include "backend/cuda/kernels/product.cuh"

namespace octavo::cuda {

template <WeightFormat kFormat>
void launch_product(const Launch& launch, const ProductArgs& args, ProductGrid grid) {
  const dim3 block(kProductThreads);
  const auto few = [&](auto kernel) {
    cuda::launch(kernel, dim3(tiles_of(args.n), grid.blocks), block, 0, launch.stream, args);
  };
  if (grid.tokens == 8) return few(few_tokens_product<kFormat, 1>);
  if (grid.tokens == 16) return few(few_tokens_product<kFormat, 2>);
  if (grid.tokens == 32) return few(few_tokens_product<kFormat, 4>);
  const dim3 blocks(ceil_div(tiles_of(args.n), ManyTokens::kTiles), grid.blocks);
  cuda::launch(many_tokens_product<kFormat>, blocks, block, ManyTokens::shared_bytes<kFormat>(), launch.stream, args);
}

}  // namespace octavo::cuda
