#pragma once
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/trace.h"
#include "ops/backend.h"

namespace octavo {

// Runs every op through another backend and notes how long it took: linear layers by the tensors they hold, and in them
// the preparation of the input apart from the product.
class TracedBackend final : public Backend {
 public:
  TracedBackend(std::unique_ptr<Backend> inner, Trace& trace);

  BackendCaps caps() const override { return inner_->caps(); }
  void use_device() noexcept override { inner_->use_device(); }
  std::unique_ptr<Queue> make_queue(int threads) override { return inner_->make_queue(threads); }
  bool host_memory() const override { return inner_->host_memory(); }
  size_t free_bytes() const override { return inner_->free_bytes(); }
  std::unique_ptr<DeviceMemory> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  std::unique_ptr<DeviceMemory> allocate_staging(size_t bytes) override { return inner_->allocate_staging(bytes); }
  std::unique_ptr<DeviceMemory> adopt(Queue& queue, Buffer host) override {
    return inner_->adopt(queue, std::move(host));
  }
  void upload(Queue& queue, void* device, const void* host, size_t bytes) override {
    inner_->upload(queue, device, host, bytes);
  }
  void download(Queue& queue, void* host, const void* device, size_t bytes) override {
    inner_->download(queue, host, device, bytes);
  }
  DeviceSteps* device_steps() override { return inner_->device_steps(); }
  size_t kv_bytes(const KvGroup& group, int block_size) const override { return inner_->kv_bytes(group, block_size); }
  std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks) override {
    return inner_->make_kv_pool(group, block_size, num_blocks);
  }
  std::unique_ptr<PackedWeight> pack(Queue& queue, const std::vector<MatrixSource>& parts) override;
  std::unique_ptr<OutputScreen> make_screen(Queue& queue, const PackedWeight& weight) override;

  void embed(Queue& queue, const EmbedParams& p) override;
  void rms_norm(Queue& queue, const RmsNormParams& p) override;
  void linear(Queue& queue, const LinearParams& p) override;
  void rope_write(Queue& queue, const RopeWriteParams& p) override;
  void attention(Queue& queue, const AttentionParams& p) override;
  void silu_mul(Queue& queue, const SiluMulParams& p) override;
  void residual_add(Queue& queue, const ResidualAddParams& p) override;
  void scale_logits(Queue& queue, const ScaleLogitsParams& p) override;
  void route_experts(Queue& queue, const RouteExpertsParams& p) override;
  std::unique_ptr<ExpertTable> make_expert_table(Queue& queue, std::vector<ExpertMatrices> experts) override {
    return inner_->make_expert_table(queue, std::move(experts));
  }
  void group_experts(Queue& queue, const GroupExpertsParams& p) override;
  void run_experts(Queue& queue, const RunExpertsParams& p) override;
  void combine_experts(Queue& queue, const CombineExpertsParams& p) override;
  void gather_rows(Queue& queue, const GatherRowsParams& p) override;
  void copy_blocks(Queue& queue, const CopyBlocksParams& p) override;

 private:
  struct LinearPhases {
    Trace::Phase* prepare;  // norm, gate and quantization of the input
    Trace::Phase* product;
    Trace::Phase* rest;  // cutting into tiles, the pool's start and end
  };

  std::unique_ptr<Backend> inner_;
  Trace& trace_;
  std::unordered_map<const PackedWeight*, LinearPhases> linears_;
  Trace::Phase *embed_, *norm_, *rope_, *attention_, *silu_, *residual_, *logits_, *route_, *group_, *experts_,
      *combine_, *gather_, *copy_;
};

}  // namespace octavo
