// Ops whose kernels are not written yet say so by name.
#include "backend/cuda/launches.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

[[noreturn]] void pending(const char* op) {
  throw Error(ErrorCode::kUnsupported, op, cat("the CUDA backend has no kernel for ", op, " yet"));
}

}  // namespace

void attention(const Launch&, const AttentionParams&) { pending("attention"); }
size_t attention_workspace(const WorkspaceLimits&, const DeviceProperties&) { return 0; }

void rope_write(const Launch&, const RopeWriteParams&) { pending("rope_write"); }

void copy_blocks(const Launch&, const CopyBlocksParams&) { pending("copy_blocks"); }

void embed(const Launch&, const EmbedParams&, const WeightView&) { pending("embed"); }
void rms_norm(const Launch&, const RmsNormParams&) { pending("rms_norm"); }
void silu_mul(const Launch&, const SiluMulParams&) { pending("silu_mul"); }
void residual_add(const Launch&, const ResidualAddParams&) { pending("residual_add"); }
void scale_logits(const Launch&, const ScaleLogitsParams&) { pending("scale_logits"); }
void gather_rows(const Launch&, const GatherRowsParams&) { pending("gather_rows"); }
InputForm input_form(const WeightView&) { pending("input_form"); }
int64_t input_width(int) { pending("input_width"); }
size_t input_bytes(InputForm, int, int) { pending("input_bytes"); }
void prepare_input(const Launch&, const LinearParams&, int, InputForm, std::byte*) { pending("prepare_input"); }

void quantized_product(const Launch&, const ProductParams&) { pending("quantized_product"); }
size_t quantized_product_workspace(const WorkspaceLimits&, const DeviceProperties&) { return 0; }

void dense_product(const Launch&, const ProductParams&) { pending("dense_product"); }
size_t dense_product_workspace(const WorkspaceLimits&, const DeviceProperties&) { return 0; }

void route_experts(const Launch&, const RouteExpertsParams&) { pending("route_experts"); }
void group_experts(const Launch&, const GroupExpertsParams&) { pending("group_experts"); }
void combine_experts(const Launch&, const CombineExpertsParams&) { pending("combine_experts"); }
void run_experts(const Launch&, const RunExpertsParams&, const DeviceExpert*, int, const DeviceExpert&) {
  pending("run_experts");
}
size_t run_experts_workspace(const WorkspaceLimits&, const DeviceProperties&) { return 0; }

PackedSize packed_size(WeightFormat, int, int) { pending("packed_size"); }
void repack(const MatrixSource&, int, int, std::byte*, std::byte*) { pending("repack"); }

}  // namespace octavo::cuda
