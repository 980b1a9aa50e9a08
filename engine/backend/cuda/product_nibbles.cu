#include "backend/cuda/kernels/launch_product.cuh"

// Codes of 4 bits with plain scales.
namespace octavo::cuda {

template void launch_product<WeightFormat::kQ4_0>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kQ4_1>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kIQ4_NL>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kMXFP4>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kInt4x32>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kInt4x128>(const Launch&, const ProductArgs&, ProductGrid);

}  // namespace octavo::cuda
