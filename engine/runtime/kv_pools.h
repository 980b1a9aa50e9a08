#pragma once
#include <memory>
#include <vector>

#include "model/decoder.h"
#include "ops/backend.h"

namespace octavo {

// The pools of a model's KV groups. They can be made after those who read them: the executor takes its memory first,
// and the cache what is left.
class KvPools {
 public:
  KvPools(Backend& backend, const std::vector<KvGroup>& groups, int block_size);
  ~KvPools();

  // blocks: one per group. Replaces what there is; nothing may read it any more.
  void allocate(const std::vector<int>& blocks);

  const std::vector<KvPool*>& views() const { return views_; }
  const std::vector<size_t>& block_bytes() const { return block_bytes_; }  // of each group, all its layers together
  size_t bytes() const;

 private:
  class Pool;
  Backend& backend_;
  const std::vector<KvGroup>& groups_;
  int block_size_;
  std::vector<size_t> block_bytes_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<KvPool*> views_;
};

// The largest step, of tokens that nobody wants: afterwards the device has given all memory that steps take.
void profile_run(Backend& backend, Queue& queue, Decoder& decoder, KvPools& pools, int block_size);

}  // namespace octavo
