#pragma once
#include <memory>
#include <unordered_map>

#include "base/trace.h"
#include "ops/backend.h"

namespace octavo {

// Runs every op through another backend and notes how long it took: linear layers by the tensors they hold, and in them
// the preparation of the input apart from the product.
class TracedBackend final : public Backend {
 public:
  TracedBackend(std::unique_ptr<Backend> inner, Trace& trace);

  BackendCaps caps() const override { return inner_->caps(); }
  std::unique_ptr<Queue> make_queue(int threads) override { return inner_->make_queue(threads); }
  size_t kv_bytes(const KvGroup& group, int block_size) const override { return inner_->kv_bytes(group, block_size); }
  std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks) override {
    return inner_->make_kv_pool(group, block_size, num_blocks);
  }
  std::unique_ptr<PackedWeight> pack(Queue& queue, const std::vector<MatrixSource>& parts) override;

  void embed(Queue& queue, const EmbedParams& p) override;
  void rms_norm(Queue& queue, const RmsNormParams& p) override;
  void linear(Queue& queue, const LinearParams& p) override;
  void rope_write(Queue& queue, const RopeWriteParams& p) override;
  void attention(Queue& queue, const AttentionParams& p) override;
  void silu_mul(Queue& queue, const SiluMulParams& p) override;
  void residual_add(Queue& queue, const ResidualAddParams& p) override;
  void scale_logits(Queue& queue, const ScaleLogitsParams& p) override;
  void route_experts(Queue& queue, const RouteExpertsParams& p) override;
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
  Trace::Phase *embed_, *norm_, *rope_, *attention_, *silu_, *residual_, *logits_, *route_, *combine_, *gather_, *copy_;
};

}  // namespace octavo
