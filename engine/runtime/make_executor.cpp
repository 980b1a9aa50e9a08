#include "runtime/make_executor.h"

#include <utility>

#include "runtime/device_executor.h"
#include "runtime/local_executor.h"

namespace octavo {

std::unique_ptr<Executor> make_executor(Backend& backend, Queue& queue, Decoder& decoder, std::vector<KvPool*> pools,
                                        const ExecutorOptions& options, Trace* trace) {
  const int max_blocks = (options.max_model_len + options.block_size - 1) / options.block_size;
  if (backend.device_steps() != nullptr) {
    DeviceExecutor::Limits limits;
    limits.max_tokens = options.max_tokens;
    limits.max_seqs = options.max_seqs;
    limits.max_blocks_per_seq = max_blocks;
    limits.max_positions = options.max_model_len;
    limits.graphs = options.graphs;
    return std::make_unique<DeviceExecutor>(backend, queue, decoder, std::move(pools), limits, trace);
  }
  LocalExecutor::Limits limits;
  limits.max_tokens = options.max_tokens;
  limits.max_seqs = options.max_seqs;
  limits.max_blocks_per_seq = max_blocks;
  limits.threads = queue.threads();
  return std::make_unique<LocalExecutor>(backend, queue, decoder, std::move(pools), limits, trace);
}

}  // namespace octavo
