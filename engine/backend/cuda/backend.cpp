#include "backend/cuda/backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/dense_library.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kv_pool.h"
#include "backend/cuda/launches.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/steps.h"
#include "backend/cuda/weight.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

constexpr size_t kAlign = 256;

constexpr size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

GpuQueue& gpu(Queue& queue) { return static_cast<GpuQueue&>(queue); }

bool is_pinned(const void* host) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, host) == cudaSuccess) return attributes.type == cudaMemoryTypeHost;
  cudaGetLastError();
  return false;
}

// What is left of a workspace behind its first `bytes`.
Launch behind(Launch launch, size_t bytes) {
  const size_t taken = aligned(bytes);
  if (taken > launch.workspace_bytes) {
    throw Error(ErrorCode::kInternal, "workspace",
                cat("an operation needs ", taken, " bytes of workspace, ", launch.workspace_bytes, " are reserved"));
  }
  launch.workspace += taken;
  launch.workspace_bytes -= taken;
  return launch;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const char* name, const DeviceProperties& device, bool fast)
      : name_(name), device_(device), dense_(open_dense_library(fast)) {}

  BackendCaps caps() const override {
    return {name_,
            cat("sm_", device_.major, device_.minor),
            1,
            device_.ordinal,
            {DType::kF16, DType::kBF16, DType::kI8, DType::kF8E4M3}};
  }
  void use_device() noexcept override { cudaSetDevice(device_.ordinal); }  // the next call tells what is wrong
  std::unique_ptr<Queue> make_queue(int) override {
    const DeviceGuard guard(device_.ordinal);
    return std::make_unique<GpuQueue>(device_,
                                      [this](const WorkspaceLimits& limits) { return workspace_bytes(limits); });
  }

  bool host_memory() const override { return false; }
  size_t free_bytes() const override {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for the GPU's free memory");
    return free;
  }
  std::unique_ptr<DeviceMemory> allocate(size_t bytes) override { return std::make_unique<GpuMemory>(bytes); }
  std::unique_ptr<DeviceMemory> allocate_staging(size_t bytes) override {
    return std::make_unique<PinnedMemory>(bytes);
  }
  std::unique_ptr<DeviceMemory> adopt(Queue& queue, Buffer host) override {
    auto memory = std::make_unique<GpuMemory>(host.size());
    upload(queue, memory->data(), host.data(), host.size());
    return memory;
  }
  void upload(Queue& queue, void* device, const void* host, size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, gpu(queue).stream()), "copying to the GPU");
    if (!is_pinned(host)) queue.wait();
  }
  void download(Queue& queue, void* host, const void* device, size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gpu(queue).stream()), "copying from the GPU");
  }

  DeviceSteps* device_steps() override { return &steps_; }

  size_t kv_bytes(const KvGroup& group, int block_size) const override { return kv_block_bytes(group, block_size); }
  std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks) override {
    return cuda::make_kv_pool(group, block_size, num_blocks);
  }
  std::unique_ptr<PackedWeight> pack(Queue& queue, const std::vector<MatrixSource>& parts) override {
    auto weight = std::make_unique<GpuWeight>(*this, queue, parts);
    for (const GpuWeight::Section& section : weight->sections()) {
      InputForm form = input_form(section.view);
      form.order = nullptr;
      const Input input{form, section.view.k};
      if (std::ranges::find(inputs_, input) == inputs_.end()) inputs_.push_back(input);
    }
    return weight;
  }

  void embed(Queue& queue, const EmbedParams& p) override {
    const auto& sections = static_cast<const GpuWeight*>(p.table)->sections();
    if (sections.size() != 1)
      throw Error(ErrorCode::kUnsupported, "embedding", "an embedding must have one format for all rows on a GPU");
    if (p.num_tokens > 0) cuda::embed(gpu(queue).launch(), p, sections[0].view);
  }
  void rms_norm(Queue& queue, const RmsNormParams& p) override {
    if (p.rows > 0) cuda::rms_norm(gpu(queue).launch(), p);
  }
  void linear(Queue& queue, const LinearParams& p) override;
  void rope_write(Queue& queue, const RopeWriteParams& p) override {
    if (p.num_tokens > 0) cuda::rope_write(gpu(queue).launch(), p);
  }
  void attention(Queue& queue, const AttentionParams& p) override {
    if (p.extent.num_tokens > 0) cuda::attention(gpu(queue).launch(), p);
  }
  void silu_mul(Queue& queue, const SiluMulParams& p) override {
    if (p.rows > 0) cuda::silu_mul(gpu(queue).launch(), p);
  }
  void residual_add(Queue& queue, const ResidualAddParams& p) override {
    if (p.rows > 0) cuda::residual_add(gpu(queue).launch(), p);
  }
  void scale_logits(Queue& queue, const ScaleLogitsParams& p) override {
    if (p.rows > 0) cuda::scale_logits(gpu(queue).launch(), p);
  }
  std::unique_ptr<ExpertTable> make_expert_table(Queue& queue, std::vector<ExpertMatrices> experts) override {
    auto table = std::make_unique<GpuExpertTable>(*this, queue, std::move(experts));
    for (const WeightView* matrix : {&table->shape.gate_up, &table->shape.down}) {
      if (matrix->format == WeightFormat::kF32) experts_input_.type = DType::kF32;
    }
    return table;
  }
  void route_experts(Queue& queue, const RouteExpertsParams& p) override {
    if (p.num_tokens > 0) cuda::route_experts(gpu(queue).launch(), p);
  }
  void group_experts(Queue& queue, const GroupExpertsParams& p) override {
    if (p.num_tokens > 0) cuda::group_experts(gpu(queue).launch(), p);
  }
  void run_experts(Queue& queue, const RunExpertsParams& p) override {
    const auto& table = static_cast<const GpuExpertTable&>(*p.table);
    if (p.num_tokens == 0) return;
    cuda::run_experts(gpu(queue).launch(), p, table.experts_on_device->as<DeviceExpert>(),
                      static_cast<int>(table.experts.size()), table.shape);
  }
  void combine_experts(Queue& queue, const CombineExpertsParams& p) override {
    if (p.num_tokens > 0) cuda::combine_experts(gpu(queue).launch(), p);
  }
  void gather_rows(Queue& queue, const GatherRowsParams& p) override {
    if (p.num_rows > 0) cuda::gather_rows(gpu(queue).launch(), p);
  }
  void copy_blocks(Queue& queue, const CopyBlocksParams& p) override {
    if (p.num_copies > 0) cuda::copy_blocks(gpu(queue).launch(), p);
  }

 private:
  // An input that some weight reads.
  struct Input {
    InputForm form;
    int k = 0;
    bool operator==(const Input&) const = default;
  };

  size_t workspace_bytes(const WorkspaceLimits& limits) const {
    size_t input = 0;
    for (const Input& i : inputs_) input = std::max(input, aligned(input_bytes(i.form, limits.max_tokens, i.k)));
    const size_t product = dense_ ? dense_->workspace_bytes() : size_t{0};
    return std::max(
        {input + product, attention_workspace(limits, device_), run_experts_workspace(limits, experts_input_)});
  }

  const char* name_;
  DeviceProperties device_;
  std::unique_ptr<DenseLibrary> dense_;  // null: own products only
  std::vector<Input> inputs_;
  InputForm experts_input_{.type = DType::kF16};  // the widest
  GpuSteps steps_;
};

// The input is prepared once for all sections that read it alike.
void CudaBackend::linear(Queue& queue, const LinearParams& p) {
  if (p.m == 0) return;
  const auto& weight = static_cast<const GpuWeight&>(*p.weight);
  const Launch whole = gpu(queue).launch();
  Launch rest;
  const InputForm* prepared = nullptr;
  InputForm form;
  for (const GpuWeight::Section& section : weight.sections()) {
    const InputForm wanted = input_form(section.view);
    if (prepared == nullptr || *prepared != wanted) {
      form = wanted;
      prepared = &form;
      rest = behind(whole, input_bytes(form, p.m, weight.k()));
      prepare_input(rest, p, weight.k(), form, whole.workspace);
    }
    ProductParams part;
    part.weight = &section.view;
    part.input = whole.workspace;
    part.m = p.m;
    part.bias = p.bias ? p.bias + section.first_row : nullptr;
    part.accumulate = p.accumulate;
    part.y = p.y + section.first_row;
    part.ldy = p.ldy;
    if (dense_ && form.type != DType::kF16) {  // rows of f16 have scales, which the library does not apply
      dense_->product(rest, part);
    } else {
      product(rest, part);
    }
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(const char* name, const BackendOptions& options) {
  const DeviceProperties device = open_device(options.device);
  const DeviceGuard guard(device.ordinal);
  return std::make_unique<CudaBackend>(name, device, options.fast);
}

}  // namespace octavo::cuda
