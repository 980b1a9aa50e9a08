#include <algorithm>

#include "backend/cuda/kernels/dequantize.cuh"
#include "backend/cuda/kernels/rows.cuh"
#include "backend/cuda/launches.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

// One block for each row, if there is one.
template <class Params>
void launch_rows(const Launch& launch, void (*kernel)(Params), int rows, const Params& p) {
  if (rows > 0) cuda::launch(kernel, dim3(rows), dim3(kRowThreads), 0, launch.stream, p);
}

void (*embed_kernel(WeightFormat format))(DequantizeArgs) {
  switch (format) {
    case WeightFormat::kF32:
      return widen_rows<WeightFormat::kF32>;
    case WeightFormat::kF16:
      return widen_rows<WeightFormat::kF16>;
    case WeightFormat::kBF16:
      return widen_rows<WeightFormat::kBF16>;
#define OCTAVO_DEQUANTIZE(f) \
  case WeightFormat::k##f:   \
    return dequantize_rows<WeightFormat::k##f>;
      OCTAVO_DEQUANTIZE(Q4_0)
      OCTAVO_DEQUANTIZE(Q4_1)
      OCTAVO_DEQUANTIZE(Q5_0)
      OCTAVO_DEQUANTIZE(Q5_1)
      OCTAVO_DEQUANTIZE(Q8_0)
      OCTAVO_DEQUANTIZE(Q2_K)
      OCTAVO_DEQUANTIZE(Q3_K)
      OCTAVO_DEQUANTIZE(Q4_K)
      OCTAVO_DEQUANTIZE(Q5_K)
      OCTAVO_DEQUANTIZE(Q6_K)
      OCTAVO_DEQUANTIZE(IQ4_NL)
      OCTAVO_DEQUANTIZE(IQ4_XS)
      OCTAVO_DEQUANTIZE(MXFP4)
      OCTAVO_DEQUANTIZE(Int4x32)
      OCTAVO_DEQUANTIZE(Int4x128)
      OCTAVO_DEQUANTIZE(Int8x32)
      OCTAVO_DEQUANTIZE(Int8x128)
      OCTAVO_DEQUANTIZE(F8x32)
      OCTAVO_DEQUANTIZE(F8x128)
#undef OCTAVO_DEQUANTIZE
  }
  throw Error(ErrorCode::kInternal, "table", cat("an embedding in format ", static_cast<int>(format)));
}

}  // namespace

void embed(const Launch& launch, const EmbedParams& p, const WeightView& table) {
  if (p.num_tokens == 0) return;
  DequantizeArgs args;
  args.codes = table.codes;
  args.scales = table.scales;
  args.ids = p.ids;
  args.n = table.n;
  args.k = table.k;
  args.slabs = slabs_of(table.k);
  args.order = table.input_order;
  args.scale = p.scale;
  args.out = p.out;
  cuda::launch(embed_kernel(table.format), dim3(p.num_tokens), dim3(kDequantizeThreads), 0, launch.stream, args);
}

void rms_norm(const Launch& launch, const RmsNormParams& p) { launch_rows(launch, rms_norm_rows, p.rows, p); }
void silu_mul(const Launch& launch, const SiluMulParams& p) { launch_rows(launch, silu_mul_rows, p.rows, p); }
void residual_add(const Launch& launch, const ResidualAddParams& p) {
  launch_rows(launch, residual_add_rows, p.rows, p);
}
void gather_rows(const Launch& launch, const GatherRowsParams& p) {
  launch_rows(launch, gather_rows_kernel, p.num_rows, p);
}

void scale_logits(const Launch& launch, const ScaleLogitsParams& p) {
  constexpr int kMostRows = 65535;  // of a grid
  for (int first = 0; first < p.rows; first += kMostRows) {
    ScaleLogitsParams part = p;
    part.x += static_cast<int64_t>(first) * p.dim;
    part.rows = std::min(p.rows - first, kMostRows);
    const dim3 blocks(ceil_div(p.dim, kRowThreads), part.rows);
    cuda::launch(scale_logits_rows, blocks, dim3(kRowThreads), 0, launch.stream, part);
  }
}

}  // namespace octavo::cuda
