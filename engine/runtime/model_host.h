#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/trace.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/weights.h"
#include "ops/backend.h"
#include "runtime/fault_points.h"
#include "runtime/kv_pools.h"
#include "runtime/open_backend.h"

namespace octavo {

struct ModelHostOptions {
  int threads = 0;
  BackendChoice backend;
  int block_size = 16;
  int num_blocks = 0;               // 0: as many as the device has room for
  double memory_utilization = 0.9;  // the share of what is free beside weights and steps that the cache then takes
  DType kv_dtype = DType::kF16;
  int max_tokens = 0;  // tokens per step
  int max_seqs = 0;
  int max_model_len = 0;
  bool graphs = true;       // of devices that record: decode steps are recorded
  bool screen_head = true;  // a coarse copy of the head is made, for greedy decoding
  bool trace = false;       // note where the time of steps goes
};

// A model in memory, ready to execute plans: the backend, its queue, packed weights, the KV pools and the executor.
class ModelHost {
 public:
  ModelHost(const ModelConfig& config, std::shared_ptr<WeightFiles> weights, const ModelHostOptions& options);
  ~ModelHost();

  FaultPoints& executor() const { return *executor_; }
  Backend& backend() const { return *backend_; }
  Decoder& decoder() const { return *decoder_; }
  const std::vector<KvPool*>& pools() const { return pools_->views(); }
  const std::vector<int>& group_blocks() const { return group_blocks_; }  // one per KV group
  Trace* trace() const { return trace_.get(); }                           // null unless asked for; the engine thread's
  int threads() const { return threads_; }
  size_t kv_bytes_per_block() const;  // all groups together
  size_t kv_bytes() const { return pools_->bytes(); }
  size_t file_bytes() const { return file_bytes_; }

 private:
  void size_pools(const ModelHostOptions& options);

  std::unique_ptr<Trace> trace_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvPools> pools_;
  std::vector<int> group_blocks_;
  std::unique_ptr<FaultPoints> executor_;
  int threads_ = 1;
  size_t file_bytes_ = 0;
};

}  // namespace octavo
