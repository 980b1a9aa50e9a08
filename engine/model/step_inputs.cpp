#include "model/step_inputs.h"

#include <algorithm>

#include "base/errors.h"
#include "base/format.h"
#include "ops/attention_extent.h"

namespace octavo {
namespace {

constexpr size_t kAlign = 64;

constexpr size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

template <class T>
size_t room(size_t count) {
  return aligned(count * sizeof(T));
}

size_t capacity_bytes(size_t groups, const StepCapacity& c) {
  const auto tokens = static_cast<size_t>(c.max_tokens), rows = static_cast<size_t>(c.max_rows);
  const size_t per_rows = room<AttentionRow>(tokens) + room<AttentionPrefixGroup>(tokens) + room<int32_t>(tokens);
  const size_t per_group = room<int32_t>(tokens) + per_rows + room<SlotCopy>(2 * rows + tokens) +
                           room<int32_t>(rows * static_cast<size_t>(c.max_blocks_per_row));
  return 3 * room<int32_t>(tokens) + per_rows + groups * per_group;
}

}  // namespace

StepInputs::StepInputs(Backend& backend, int num_groups, int last_group, const StepCapacity& capacity)
    : backend_(backend),
      last_group_(static_cast<size_t>(last_group)),
      wanted_(capacity.max_tokens),
      groups_(static_cast<size_t>(num_groups)),
      placed_(groups_.size() + 1) {
  if (backend.host_memory()) return;
  const size_t bytes = capacity_bytes(groups_.size(), capacity);
  staging_ = backend.allocate_staging(bytes);
  device_ = backend.allocate(bytes);
}

ForwardBatch& StepInputs::stage(Queue& queue, const HostBatch& host) {
  if (host.logit_tokens.size() < host.tokens.size()) {
    wanted_.cut(host.groups[last_group_].rows, host.prefix_groups, host.logit_tokens);
  } else {
    wanted_.cut({}, {}, {});  // the rows themselves
  }
  batch_.num_tokens = static_cast<int>(host.tokens.size());
  batch_.num_logits = static_cast<int>(host.logit_tokens.size());
  if (staging_) {
    move(queue, host);
  } else {
    point_at_host(host);
  }
  batch_.groups = groups_;
  return batch_;
}

void StepInputs::assume_context(int positions) {
  for (ForwardBatch::Group& group : groups_) {
    AttentionExtent& extent = group.attention.extent;
    extent.longest_context = std::max(extent.longest_context, positions);
  }
}

void StepInputs::point_at_host(const HostBatch& host) {
  const auto rows = [](std::span<const AttentionRow> rows, std::span<const AttentionPrefixGroup> groups) {
    return ForwardBatch::Rows{rows.data(), static_cast<int>(rows.size()), groups.data(),
                              static_cast<int>(groups.size()), attention_extent(rows, groups)};
  };
  batch_.tokens = host.tokens.data();
  batch_.positions = host.positions.data();
  batch_.logit_tokens = host.logit_tokens.data();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const HostBatch::Group& from = host.groups[g];
    groups_[g] = {from.slots.data(), rows(from.rows, host.prefix_groups), from.copies.data(),
                  static_cast<int>(from.copies.size())};
  }
  batch_.wanted = rows(wanted_.rows(), wanted_.prefix_groups());
}

// What has a length of its own in every step, block tables and copies, comes last.
void StepInputs::move(Queue& queue, const HostBatch& host) {
  used_ = 0;
  batch_.tokens = place(host.tokens);
  batch_.positions = place(host.positions);
  batch_.logit_tokens = place(host.logit_tokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].slots = place(host.groups[g].slots);
    place_rows(host.groups[g].rows, host.prefix_groups, groups_[g].attention, placed_[g]);
  }
  place_rows(wanted_.rows(), wanted_.prefix_groups(), batch_.wanted, placed_.back());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const HostBatch::Group& from = host.groups[g];
    groups_[g].copies = place(from.copies);
    groups_[g].num_copies = static_cast<int>(from.copies.size());
    const int32_t* tables = place(from.tables);
    const auto move_tables = [&](std::span<AttentionRow> rows) {
      for (AttentionRow& row : rows) row.block_table = tables + (row.block_table - from.tables.data());
    };
    move_tables(placed_[g]);
    if (g == last_group_) move_tables(placed_.back());
  }
  backend_.upload(queue, device_->data(), staging_->data(), used_);
}

void StepInputs::place_rows(std::span<const AttentionRow> rows, std::span<const AttentionPrefixGroup> groups,
                            ForwardBatch::Rows& out, std::span<AttentionRow>& placed) {
  out.extent = attention_extent(rows, groups);
  out.num_rows = static_cast<int>(rows.size());
  out.num_prefix_groups = static_cast<int>(groups.size());
  AttentionRow* to = take(rows.size(), out.rows);
  std::ranges::copy(rows, to);
  placed = {to, rows.size()};
  AttentionPrefixGroup* group = take(groups.size(), out.prefix_groups);
  size_t num_members = 0;
  for (const AttentionPrefixGroup& from : groups) num_members += static_cast<size_t>(from.num_rows);
  const int32_t* device_members = nullptr;
  int32_t* members = take(num_members, device_members);
  for (const AttentionPrefixGroup& from : groups) {
    *group++ = {device_members, from.num_rows, from.partitions};
    members = std::copy_n(from.rows, from.num_rows, members);
    device_members += from.num_rows;
  }
}

template <class T>
T* StepInputs::take(size_t count, const T*& device) {
  const size_t begin = used_;
  used_ += room<T>(count);
  if (used_ > staging_->size()) {
    throw Error(ErrorCode::kInternal, "plan",
                cat("a step's integers need more than the ", staging_->size(), " bytes they have"));
  }
  device = reinterpret_cast<const T*>(device_->data() + begin);
  return reinterpret_cast<T*>(staging_->data() + begin);
}

template <class T>
const T* StepInputs::place(std::span<const T> values) {
  const T* device = nullptr;
  std::ranges::copy(values, take(values.size(), device));
  return device;
}

}  // namespace octavo
