#include "backend/cpu/cpu_backend.h"

#include <cstring>
#include <utility>

#include "backend/cpu/attention.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/kv_pool.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/output_screen.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/rope.h"
#include "backend/cpu/screened_linear.h"
#include "ops/experts_in_turn.h"
#include "tensor/huge_pages.h"

namespace octavo {
namespace {

CpuQueue& cpu_queue(Queue& queue) { return static_cast<CpuQueue&>(queue); }

class HostMemory final : public DeviceMemory {
 public:
  explicit HostMemory(Buffer buffer) : DeviceMemory(buffer.data(), buffer.size()), buffer_(std::move(buffer)) {}

 private:
  Buffer buffer_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(Isa isa) : isa_(isa), kernels_(kernels_for(isa)) {}

  BackendCaps caps() const override {
    return {
        "cpu", isa_name(isa_), allowed_cpus(), 0, {DType::kF16, DType::kBF16, DType::kF32, DType::kI8, DType::kF8E4M3}};
  }
  std::unique_ptr<Queue> make_queue(int threads) override { return std::make_unique<CpuQueue>(threads); }

  bool host_memory() const override { return true; }
  size_t free_bytes() const override { return 0; }
  std::unique_ptr<DeviceMemory> allocate(size_t bytes) override { return std::make_unique<HostMemory>(Buffer(bytes)); }
  std::unique_ptr<DeviceMemory> allocate_staging(size_t bytes) override { return allocate(bytes); }
  std::unique_ptr<DeviceMemory> adopt(Queue& queue, Buffer host) override {
    return std::make_unique<HostMemory>(std::move(host));
  }
  void upload(Queue& queue, void* device, const void* host, size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);  // nothing may lie nowhere
  }
  void download(Queue& queue, void* host, const void* device, size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }

  size_t kv_bytes(const KvGroup& group, int block_size) const override {
    return cpu::kv_block_bytes(group, block_size);
  }
  std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks) override {
    return cpu::make_kv_pool(group, block_size, num_blocks);
  }
  std::unique_ptr<PackedWeight> pack(Queue& queue, const std::vector<MatrixSource>& parts) override {
    return cpu::pack(cpu_queue(queue), kernels_.pack, weights_, parts);
  }
  std::unique_ptr<OutputScreen> make_screen(Queue& queue, const PackedWeight& weight) override {
    return cpu::make_screen(cpu_queue(queue), weights_, weight);
  }

  void embed(Queue& queue, const EmbedParams& p) override { cpu::embed(cpu_queue(queue), p); }
  void linear(Queue& queue, const LinearParams& p) override {
    if (p.screen) return cpu::screened_linear(cpu_queue(queue), kernels_, p);
    cpu::linear(cpu_queue(queue), kernels_, p);
  }
  void rms_norm(Queue& queue, const RmsNormParams& p) override { cpu::rms_norm(cpu_queue(queue), kernels_, p); }
  void silu_mul(Queue& queue, const SiluMulParams& p) override { cpu::silu_mul(cpu_queue(queue), kernels_, p); }
  void residual_add(Queue& queue, const ResidualAddParams& p) override {
    cpu::residual_add(cpu_queue(queue), kernels_, p);
  }
  void scale_logits(Queue& queue, const ScaleLogitsParams& p) override {
    cpu::scale_logits(cpu_queue(queue), kernels_, p);
  }
  void rope_write(Queue& queue, const RopeWriteParams& p) override { cpu::rope_write(cpu_queue(queue), kernels_, p); }
  void attention(Queue& queue, const AttentionParams& p) override { cpu::attention(cpu_queue(queue), kernels_, p); }
  void route_experts(Queue& queue, const RouteExpertsParams& p) override { cpu::route_experts(cpu_queue(queue), p); }
  std::unique_ptr<ExpertTable> make_expert_table(Queue& queue, std::vector<ExpertMatrices> experts) override {
    return std::make_unique<ExpertTable>(std::move(experts));
  }
  void group_experts(Queue& queue, const GroupExpertsParams& p) override { cpu::group_experts(p); }
  void run_experts(Queue& queue, const RunExpertsParams& p) override { run_experts_in_turn(*this, queue, p); }
  void combine_experts(Queue& queue, const CombineExpertsParams& p) override {
    cpu::combine_experts(cpu_queue(queue), kernels_, p);
  }
  void gather_rows(Queue& queue, const GatherRowsParams& p) override { cpu::gather_rows(cpu_queue(queue), p); }
  void copy_blocks(Queue& queue, const CopyBlocksParams& p) override { cpu::copy_blocks(cpu_queue(queue), p); }

 private:
  Isa isa_;
  const Kernels& kernels_;
  HugePages weights_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const std::string& isa) {
  return std::make_unique<CpuBackend>(choose_isa(isa));
}

}  // namespace octavo
