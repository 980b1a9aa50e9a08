#include "backend/cuda/kernels/stage_rows.cuh"
#include "backend/cuda/product_args.h"

namespace octavo::cuda {
namespace {

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

InputForm input_form(const WeightView& weight) {
  InputForm form;
  form.order = weight.input_order;
  switch (weight.format) {
    case WeightFormat::kF32:
      form.type = DType::kF32;
      break;
    case WeightFormat::kBF16:
      form.type = DType::kBF16;
      break;
    case WeightFormat::kF16:
      form.type = DType::kF16;
      break;
    default:
      form.type = DType::kF16;
      form.halves = has_halves(weight_layout(weight.format).scales);
      break;
  }
  return form;
}

int64_t input_width(int k) { return int64_t{slabs_of(k)} * kSlab; }

InputParts input_parts(const InputForm& form, int m, int k, std::byte* at) {
  InputParts parts;
  parts.rows = at;
  parts.bytes = aligned(static_cast<size_t>(m) * input_width(k) * dtype_size(form.type));
  if (form.type != DType::kF16) return parts;
  parts.scale = reinterpret_cast<float*>(at + parts.bytes);
  parts.bytes += aligned(static_cast<size_t>(m) * sizeof(float));
  parts.sums = reinterpret_cast<float*>(at + parts.bytes);
  parts.bytes += aligned(static_cast<size_t>(m) * slabs_of(k) * 4 * sizeof(float));
  return parts;
}

size_t input_bytes(InputForm form, int m, int k) { return input_parts(form, m, k, nullptr).bytes; }

void prepare_input(const Launch& launch, const LinearParams& p, int k, InputForm form, std::byte* out) {
  if (p.m == 0) return;
  const InputParts parts = input_parts(form, p.m, k, out);
  StageArgs args;
  args.x = p.x;
  args.ldx = p.ldx;
  args.k = k;
  args.slabs = slabs_of(k);
  args.prologue = p.prologue;
  args.norm_weight = p.norm_weight;
  args.eps = p.eps;
  args.order = form.order;
  args.out = parts.rows;
  args.scale = parts.scale;
  args.sums = parts.sums;
  args.halves_order = form.halves;
  const auto kernel = form.type == DType::kF32   ? stage_rows<StagedType::kF32>
                      : form.type == DType::kF16 ? stage_rows<StagedType::kF16>
                                                 : stage_rows<StagedType::kBF16>;
  cuda::launch(kernel, dim3(p.m), dim3(kRowThreads), 0, launch.stream, args);
}

}  // namespace octavo::cuda
