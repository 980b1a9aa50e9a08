#include "runtime/model_host.h"

#include <numeric>

#include "base/errors.h"
#include "base/format.h"
#include "runtime/group_blocks.h"
#include "runtime/make_executor.h"
#include "runtime/traced_backend.h"

namespace octavo {
namespace {

std::unique_ptr<Backend> make_backend(const BackendChoice& choice, Trace* trace) {
  auto backend = open_backend(choice);
  backend->use_device();
  if (trace) backend = std::make_unique<TracedBackend>(std::move(backend), *trace);
  return backend;
}

}  // namespace

ModelHost::ModelHost(const ModelConfig& config, std::shared_ptr<WeightFiles> weights, const ModelHostOptions& options)
    : trace_(options.trace ? std::make_unique<Trace>() : nullptr),
      backend_(make_backend(options.backend, trace_.get())),
      queue_(backend_->make_queue(options.threads)),
      file_bytes_(weights->file_bytes()) {
  threads_ = queue_->threads();
  decoder_ = std::make_unique<Decoder>(config, *weights, *backend_, *queue_, options.kv_dtype, options.max_tokens,
                                       options.max_model_len, options.screen_head);
  pools_ = std::make_unique<KvPools>(*backend_, decoder_->kv_groups(), options.block_size);
  const bool measured = options.num_blocks == 0;
  if (!measured) size_pools(options);  // before what would be allocated in vain
  const ExecutorOptions executor{options.block_size, options.max_tokens, options.max_seqs, options.max_model_len,
                                 options.graphs};
  executor_ = std::make_unique<FaultPoints>(
      make_executor(*backend_, *queue_, *decoder_, pools_->views(), executor, trace_.get()));
  if (measured) size_pools(options);
}

ModelHost::~ModelHost() = default;

size_t ModelHost::kv_bytes_per_block() const {
  const std::vector<size_t>& bytes = pools_->block_bytes();
  return std::accumulate(bytes.begin(), bytes.end(), size_t{0});
}

void ModelHost::size_pools(const ModelHostOptions& options) {
  constexpr int kFewest = 2;
  const std::vector<KvGroup>& groups = decoder_->kv_groups();
  int blocks = options.num_blocks;
  if (blocks == 0) {
    profile_run(*backend_, *queue_, *decoder_, *pools_, options.block_size);
    const size_t free = backend_->free_bytes() + pools_->bytes();
    const auto budget = static_cast<size_t>(static_cast<double>(free) * options.memory_utilization);
    blocks =
        fitting_blocks(groups, pools_->block_bytes(), budget, options.block_size, options.max_seqs, options.max_tokens);
    if (blocks < kFewest) {
      throw Error(ErrorCode::kOutOfMemory, "gpu_memory_utilization",
                  cat("weights and steps leave ", free, " bytes of the GPU's memory free; ", options.memory_utilization,
                      " of them must hold at least ", kFewest, " blocks of ", kv_bytes_per_block(), " bytes"));
    }
  }
  group_blocks_ = octavo::group_blocks(groups, blocks, options.block_size, options.max_seqs, options.max_tokens);
  pools_->allocate(group_blocks_);
}

}  // namespace octavo
