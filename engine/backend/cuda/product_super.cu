#include "backend/cuda/kernels/launch_product.cuh"

// Codes whose scales are small integers times a scale of 256 columns.
namespace octavo::cuda {

template void launch_product<WeightFormat::kQ2_K>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kQ3_K>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kQ4_K>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kQ5_K>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kQ6_K>(const Launch&, const ProductArgs&, ProductGrid);
template void launch_product<WeightFormat::kIQ4_XS>(const Launch&, const ProductArgs&, ProductGrid);

}  // namespace octavo::cuda
