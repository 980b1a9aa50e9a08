#pragma once
// What the kernel files offer to the backend, one function per op; the backend's own files (backend.cpp, queue.cpp,
// ...) call nothing else of them. Rules that hold for all:
// - Params are the ops' own (ops/params.h): every pointer in them is a device pointer, lengths are the host's.
// - A launch only enqueues on launch.stream: it allocates nothing, waits for nothing and reads no device memory, so a
//   step can be captured as a graph. Sizes that only the device knows (an expert's rows) bound loops in the kernel.
// - Scratch is launch.workspace, uninitialized, the op's alone until the next op of the stream; an op that needs some
//   says how much for the largest step in a function ..._workspace, and the queue reserves the largest of all.
// - An element of a result depends on its own row and the model's shape alone; no atomics on floats.
//
// Each file is listed in sources.cmake and compiles with nvcc and, as C++, with the emulator.
#include <cstddef>
#include <cstdint>

#include "backend/cuda/platform.h"
#include "ops/backend.h"

namespace octavo::cuda {

struct DeviceProperties {
  int ordinal = 0;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;  // most that a block may ask for
  size_t memory_bytes = 0;
};

struct Launch {
  cudaStream_t stream = nullptr;
  std::byte* workspace = nullptr;  // 256-byte aligned
  size_t workspace_bytes = 0;
  const DeviceProperties* device = nullptr;
};

// A matrix on the device in the layout of weight_layout.h: rows of one format. A PackedWeight holds one for each run of
// parts with the same format.
struct WeightView {
  WeightFormat format = WeightFormat::kF32;
  int n = 0;
  int k = 0;
  const std::byte* codes = nullptr;      // or the rows of a dense matrix
  const std::byte* scales = nullptr;     // null: dense
  const int32_t* input_order = nullptr;  // [k] column j meets input feature input_order[j]; null: identity
};

// --- attention.cu
size_t attention_workspace(const WorkspaceLimits& limits, const DeviceProperties& device);
void attention(const Launch& launch, const AttentionParams& p);

// --- rope_write.cu
void rope_write(const Launch& launch, const RopeWriteParams& p);

// --- copy_blocks.cu
void copy_blocks(const Launch& launch, const CopyBlocksParams& p);

// --- elementwise.cu
void embed(const Launch& launch, const EmbedParams& p, const WeightView& table);
void rms_norm(const Launch& launch, const RmsNormParams& p);
void silu_mul(const Launch& launch, const SiluMulParams& p);
void residual_add(const Launch& launch, const ResidualAddParams& p);
void scale_logits(const Launch& launch, const ScaleLogitsParams& p);
void gather_rows(const Launch& launch, const GatherRowsParams& p);

// The input of a product as the kernels of a weight's format read it: the prologue applied, then converted, permuted by
// the weight's input_order and padded.
struct InputForm {
  DType type = DType::kBF16;
  bool halves = false;  // slab_order.h: in the order that formats with scales of 16 columns read
  const int32_t* order = nullptr;
  bool operator==(const InputForm&) const = default;
};
InputForm input_form(const WeightView& weight);
int64_t input_width(int k);                        // elements of a row, padded
size_t input_bytes(InputForm form, int m, int k);  // with what belongs to it (sums of groups)
// p: x, m, prologue and what that needs; k is the weight's. out: [m, input_width(k)], 256-byte aligned.
void prepare_input(const Launch& launch, const LinearParams& p, int k, InputForm form, std::byte* out);

// y = (or +=) input weight^T + bias; y [m, weight.n] has row stride ldy.
struct ProductParams {
  const WeightView* weight = nullptr;
  const std::byte* input = nullptr;  // prepare_input's
  int m = 0;
  const float* bias = nullptr;  // [n] or null
  bool accumulate = false;
  float* y = nullptr;
  int64_t ldy = 0;
};

// --- product.cu: of every format; f32 and bf16 are cuBLASLt's where it is there
void product(const Launch& launch, const ProductParams& p);

// --- experts.cu
// What the kernels read of a layer's experts, on the device. All experts have the same formats and shapes.
struct DeviceExpert {
  WeightView gate_up;
  WeightView down;
  const float* gate_up_bias = nullptr;
  const float* down_bias = nullptr;
};
void route_experts(const Launch& launch, const RouteExpertsParams& p);
void group_experts(const Launch& launch, const GroupExpertsParams& p);
void combine_experts(const Launch& launch, const CombineExpertsParams& p);
// widest: of the inputs of all experts that there are.
size_t run_experts_workspace(const WorkspaceLimits& limits, InputForm widest);
// experts: [num_experts] on the device; shape: one of them, on the host. p.table and p.gathered are not read.
void run_experts(const Launch& launch, const RunExpertsParams& p, const DeviceExpert* experts, int num_experts,
                 const DeviceExpert& shape);

// --- sampling.cu: see sampling.h

// --- repack.cpp: on the host, as a matrix is loaded
struct PackedSize {
  size_t codes = 0;
  size_t scales = 0;
};
// Error(kUnsupported, name, ...) for a format without kernels here.
PackedSize packed_size(WeightFormat format, int n, int k);
// Packs up to kTileRows rows of a file, k columns of format `from`, as tile `tile` of a whole matrix's codes and
// scales; rows that lack are zero. `to` is `from`, or what dense rows are quantized to. Tiles may be packed by several
// threads.
void repack_tile(WeightFormat from, WeightFormat to, const std::byte* const* rows, int count, int k, int tile,
                 std::byte* codes, std::byte* scales);

}  // namespace octavo::cuda
