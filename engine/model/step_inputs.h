#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/batch.h"
#include "model/wanted_rows.h"
#include "ops/backend.h"

namespace octavo {

// The largest step that StepInputs holds.
struct StepCapacity {
  int max_tokens = 0;
  int max_rows = 0;  // sequences
  int max_blocks_per_row = 0;
};

// The integers of a step where the device reads them: built in host memory and moved by one copy. Where the device
// reads host memory nothing is moved. Allocates nothing once made.
class StepInputs {
 public:
  // last_group: the KV group of the model's last layer.
  StepInputs(Backend& backend, int num_groups, int last_group, const StepCapacity& capacity);

  // Valid until the next call; `host` and what it points to must stay until the step is done, and the step before must
  // be done. Equal counts of tokens, rows, groups and wanted tokens lie at equal addresses.
  ForwardBatch& stage(Queue& queue, const HostBatch& host);
  // Lets the launches of the staged batch assume a longer context than it has, so that they serve others too.
  void assume_context(int positions);
  // Where the staged tokens lie, for who knows them later; null where the device reads host memory.
  int32_t* device_tokens() const { return device_ ? device_->as<int32_t>() : nullptr; }

 private:
  void point_at_host(const HostBatch& host);
  void move(Queue& queue, const HostBatch& host);

  template <class T>
  T* take(size_t count, const T*& device);
  template <class T>
  const T* place(std::span<const T> values);
  void place_rows(std::span<const AttentionRow> rows, std::span<const AttentionPrefixGroup> groups,
                  ForwardBatch::Rows& out, std::span<AttentionRow>& placed);

  Backend& backend_;
  size_t last_group_;
  WantedRows wanted_;
  std::vector<ForwardBatch::Group> groups_;
  std::vector<std::span<AttentionRow>> placed_;  // rows in staging memory, whose tables are placed last
  ForwardBatch batch_;
  std::unique_ptr<DeviceMemory> staging_;  // null where the device reads host memory
  std::unique_ptr<DeviceMemory> device_;
  size_t used_ = 0;
};

}  // namespace octavo
