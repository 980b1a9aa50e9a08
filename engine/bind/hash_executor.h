#pragma once
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/executor.h"
#include "sched/scheduler.h"

namespace octavo {

struct HashModel {
  SchedulerConfig sched;
  int slots = 1;
  int vocab = 96;
  int32_t poison = -1;    // a row that holds this token makes its step throw
  int non_finite_in = 0;  // one of so many logits is not finite, 0: none
};

// Executes plans with hashes instead of a model: each slot of the cache holds a hash of all tokens up to it, and what
// is drawn depends on every visible slot, so that a slot that is written wrongly shows in the tokens. A step is carried
// out as late as may be, when it is waited for, which lets everything happen meanwhile that may.
class HashExecutor final : public Executor {
 public:
  explicit HashExecutor(HashModel model);

  // The n-th submit, or the n-th wait, from now on throws once.
  void fail_submit(int n) { failing_submits_.insert(submits_ + n); }
  void fail_wait(int n) { failing_waits_.insert(waits_ + n); }

  void add_sequence(SeqId seq, std::shared_ptr<const SamplingParams> params, std::span<const int32_t> history,
                    size_t num_output, uint32_t choice) override;
  void fork_sequence(SeqId parent, SeqId child, uint32_t choice) override;
  bool accept(SeqId seq, int32_t token) override;
  void list_forced(SeqId seq, std::vector<int32_t>& tokens) override;
  void drop_sequence(SeqId seq) override;
  int slots() const override { return model_.slots; }
  bool needs_tokens(const SamplingParams& params) const override;
  void submit(const StepPlan& plan, int slot) override;
  const StepResult& wait(int slot) override;

 private:
  struct Sequence {
    std::shared_ptr<const SamplingParams> params;
    std::vector<int32_t> history;
    uint32_t choice = 0;
    std::unique_ptr<Constraint> constraint;
  };
  struct Slot {
    const StepPlan* plan = nullptr;
    StepResult result;
  };

  int32_t input(const StepPlan& plan, const PlanRow& row, int32_t i) const;
  uint64_t& cell(size_t group, int32_t slot) { return kv_.at(group).at(static_cast<size_t>(slot)); }
  void copy(const StepPlan& plan);
  void forward(const StepPlan& plan);
  void draw(const StepPlan& plan, StepResult& result);
  SampleOutput sample(Sequence& s, uint64_t logits, int32_t position);
  PositionLogprobs score(uint64_t logits, int32_t token, int top) const;

  HashModel model_;
  std::vector<std::vector<uint64_t>> kv_;  // [groups][slots of the pool]
  std::unordered_map<SeqId, Sequence> sequences_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> logits_;                  // [tokens of the step]
  std::map<StepId, std::vector<int32_t>> drawn_;  // of the last two steps
  int submits_ = 0;
  int waits_ = 0;
  std::set<int> failing_submits_, failing_waits_;
};

}  // namespace octavo
