#include "backend/cuda/kernels/launch_product.cuh"

// Codes of 5 and of 8 bits with plain scales.
namespace octavo::cuda {

template void launch_product<WeightFormat::kQ5_0>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kQ5_1>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kQ8_0>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kInt8x32>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kInt8x128>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kF8x32>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kF8x128>(const Launch&, const ProductArgs&, ProductGrid);

}  // namespace octavo::cuda
