#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/trace.h"
#include "ops/device_memory.h"
#include "ops/device_steps.h"
#include "ops/kv_group.h"
#include "ops/moe_params.h"
#include "ops/output_screen.h"
#include "ops/packed_weight.h"
#include "ops/params.h"
#include "ops/weight_source.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace octavo {

struct BackendCaps {
  std::string name;  // "cpu", "cuda"
  std::string isa;   // "baseline", "avx2", "avx512bf16", ...; "sm_90"
  int threads = 1;
  int ordinal = 0;  // of the device among those of its kind
  std::vector<DType> kv_dtypes;
};

// The largest step a workspace must serve. Sized once; no op allocates afterwards.
struct WorkspaceLimits {
  int max_tokens = 0;  // tokens per step
  int max_k = 0;       // largest input width of any linear
  int max_n = 0;       // largest output width of any linear
  int max_heads = 0;
  int max_head_dim = 0;
  int max_positions = 0;
  int max_rows = 0;         // rows of logits and of attention per step; 0: max_tokens
  int max_expert_rows = 0;  // tokens per step times the experts of each
};

// The stream of work of one executor: the CPU's thread pool and workspace, a CUDA stream.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual int threads() const = 0;  // host threads that work on it
  virtual void reserve(const WorkspaceLimits& limits) = 0;
  // Runs body(i) for i in [0, n) on the queue's threads and waits. For host-side work of a step (sampling).
  virtual void parallel_for(int n, const std::function<void(int)>& body) = 0;
  // Returns when all that was asked of the queue is done; throws what failed on the device meanwhile.
  virtual void wait() = 0;
  // Where the time of each later parallel region is noted; null: nowhere.
  virtual void watch_regions(RegionTimes* times) = 0;
  // Until leave() the queue's work goes into a stream that somebody else owns: behind what was asked of the queue and
  // of that stream before, and what either is asked later goes behind it. No host thread waits. stream: the device's
  // own handle (a cudaStream_t, 0: its default stream). The device is the calling thread's meanwhile. The CPU has no
  // streams.
  virtual void enter(uintptr_t stream) {}
  virtual void leave() {}
};

// The pool of a KV group: memory for num_blocks blocks in each layer of the group.
class KvPool {
 public:
  virtual ~KvPool() = default;
  virtual KvLayer layer(int index) const = 0;  // index into KvGroup::layers
  virtual size_t bytes() const = 0;
  // Around a step that writes slots up to `highest`: while there is none the pool may get memory for later slots ready.
  virtual void begin_writes(int /*highest*/) noexcept {}
  virtual void end_writes() noexcept {}
};

// What a device offers. Ops are asynchronous on CUDA and immediate on the CPU; all pointers are device pointers.
// Every element of an op's output depends on its own row and the model's shape alone: never on m, the company or
// the number of threads.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendCaps caps() const = 0;
  // What the calling thread asks from now on goes to this device. Each thread that works with it says so, once.
  virtual void use_device() noexcept {}
  virtual std::unique_ptr<Queue> make_queue(int threads) = 0;

  // Device pointers are host pointers, and ops are done when they return: nothing needs to be moved.
  virtual bool host_memory() const = 0;
  // Bytes that allocate() could still give; 0: nobody counts them (the CPU's memory belongs to others too).
  virtual size_t free_bytes() const = 0;
  // Zero-initialised; Error(kOutOfMemory, "memory", ...).
  virtual std::unique_ptr<DeviceMemory> allocate(size_t bytes) = 0;
  // The same bytes on the device, for good.
  virtual std::unique_ptr<DeviceMemory> adopt(Queue& queue, Buffer host) = 0;
  // Host memory from which upload() and to which download() return at once.
  virtual std::unique_ptr<DeviceMemory> allocate_staging(size_t bytes) = 0;
  // In the order of the queue's work. The host's bytes may be overwritten afterwards; those of staging memory, and
  // those that download() fills, stand still from queue.wait() on.
  virtual void upload(Queue& queue, void* device, const void* host, size_t bytes) = 0;
  virtual void download(Queue& queue, void* host, const void* device, size_t bytes) = 0;

  // What lets steps follow one another on the device; null where ops are done when they return.
  virtual DeviceSteps* device_steps() { return nullptr; }

  // Bytes of one block of `group`, all layers together.
  virtual size_t kv_bytes(const KvGroup& group, int block_size) const = 0;
  virtual std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks) = 0;

  // Packs the rows of `parts`, one after the other, into one matrix (fused QKV, gate/up). All parts share k.
  // Formats may differ between parts when the backend can hold them together, else Error(kUnsupported, name).
  // Deterministic; runs in parallel on the queue.
  virtual std::unique_ptr<PackedWeight> pack(Queue& queue, const std::vector<MatrixSource>& parts) = 0;

  // For LinearParams::screen with `weight`, which must outlive it; null where it would save nothing.
  virtual std::unique_ptr<OutputScreen> make_screen(Queue& /*queue*/, const PackedWeight& /*weight*/) {
    return nullptr;
  }

  virtual void embed(Queue& queue, const EmbedParams& p) = 0;
  virtual void rms_norm(Queue& queue, const RmsNormParams& p) = 0;
  virtual void linear(Queue& queue, const LinearParams& p) = 0;
  virtual void rope_write(Queue& queue, const RopeWriteParams& p) = 0;
  virtual void attention(Queue& queue, const AttentionParams& p) = 0;
  virtual void silu_mul(Queue& queue, const SiluMulParams& p) = 0;
  virtual void residual_add(Queue& queue, const ResidualAddParams& p) = 0;
  virtual void scale_logits(Queue& queue, const ScaleLogitsParams& p) = 0;
  // A table for run_experts; the matrices and biases must outlive it.
  virtual std::unique_ptr<ExpertTable> make_expert_table(Queue& queue, std::vector<ExpertMatrices> experts) = 0;
  virtual void route_experts(Queue& queue, const RouteExpertsParams& p) = 0;
  virtual void group_experts(Queue& queue, const GroupExpertsParams& p) = 0;
  virtual void run_experts(Queue& queue, const RunExpertsParams& p) = 0;
  virtual void combine_experts(Queue& queue, const CombineExpertsParams& p) = 0;
  virtual void gather_rows(Queue& queue, const GatherRowsParams& p) = 0;
  virtual void copy_blocks(Queue& queue, const CopyBlocksParams& p) = 0;
};

}  // namespace octavo
