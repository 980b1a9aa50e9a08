#include "runtime/model_host.h"

#include "runtime/local_executor.h"
#include "runtime/traced_backend.h"

namespace octavo {
namespace {

std::unique_ptr<Backend> make_backend(const BackendChoice& choice, Trace* trace) {
  auto backend = open_backend(choice);
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
                                       options.max_model_len);
  std::vector<KvPool*> pools;
  const std::vector<KvGroup>& groups = decoder_->kv_groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    kv_bytes_per_block_ += backend_->kv_bytes(groups[g], options.block_size);
    pools_.push_back(backend_->make_kv_pool(groups[g], options.block_size, options.group_blocks.at(g)));
    pools.push_back(pools_.back().get());
  }
  LocalExecutor::Limits limits;
  limits.max_tokens = options.max_tokens;
  limits.max_seqs = options.max_seqs;
  limits.max_blocks_per_seq = (options.max_model_len + options.block_size - 1) / options.block_size;
  limits.threads = threads_;
  executor_ = std::make_unique<FaultPoints>(
      std::make_unique<LocalExecutor>(*backend_, *queue_, *decoder_, std::move(pools), limits, trace_.get()));
}

ModelHost::~ModelHost() = default;

size_t ModelHost::kv_bytes() const {
  size_t total = 0;
  for (const auto& pool : pools_) total += pool->bytes();
  return total;
}

}  // namespace octavo
