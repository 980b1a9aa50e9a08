#pragma once
#include <memory>
#include <vector>

#include "base/trace.h"
#include "model/decoder.h"
#include "runtime/executor.h"

namespace octavo {

struct ExecutorOptions {
  int block_size = 16;
  int max_tokens = 0;
  int max_seqs = 0;
  int max_model_len = 0;
  bool graphs = true;  // of devices that record: decode steps are recorded
};

// The executor that suits the backend: one that samples on the host, or one that keeps two steps under way on a device.
std::unique_ptr<Executor> make_executor(Backend& backend, Queue& queue, Decoder& decoder, std::vector<KvPool*> pools,
                                        const ExecutorOptions& options, Trace* trace);

}  // namespace octavo
