#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/trace.h"
#include "runtime/executor.h"

namespace octavo {

// A fault to be provoked by tests: it strikes steps whose plan contains `token` (-1: any step), `times` times.
struct Fault {
  enum class Kind : uint8_t { kThrow, kOutOfMemory, kDeviceLost, kNonFinite, kGrammar, kHold };
  Kind kind = Kind::kThrow;
  int32_t token = -1;
  int32_t times = 1;
  int32_t larger_than = 0;  // strikes steps of more tokens only
  double seconds = 0;       // kHold: how long the engine thread stands still
  std::string phase;        // where a step is struck, by its name in the trace; empty: before it is submitted
  int32_t after = 0;        // entries of that phase that are let pass first: the op of a later layer
};

// Executes through another executor and provokes the faults it was armed with. Unarmed it costs one branch a step.
class FaultPoints final : public Executor {
 public:
  explicit FaultPoints(std::unique_ptr<Executor> inner)
      : inner_(std::move(inner)), poisoned_(static_cast<size_t>(inner_->slots())) {}

  void arm(const Fault& fault) { faults_.push_back(fault); }
  // The fault strikes on entry of its phase. Error(kInvalidArgument) where the trace has none of that name.
  void arm(const Fault& fault, Trace& trace);

  void add_sequence(SeqId seq, std::shared_ptr<const SamplingParams> params, std::span<const int32_t> history,
                    size_t num_output, uint32_t choice) override {
    inner_->add_sequence(seq, std::move(params), history, num_output, choice);
  }
  void fork_sequence(SeqId parent, SeqId child, uint32_t choice) override {
    inner_->fork_sequence(parent, child, choice);
  }
  bool accept(SeqId seq, int32_t token) override { return inner_->accept(seq, token); }
  void list_forced(SeqId seq, std::vector<int32_t>& tokens) override { inner_->list_forced(seq, tokens); }
  bool waited_for_mask(SeqId seq) override { return inner_->waited_for_mask(seq); }
  void drop_sequence(SeqId seq) override { inner_->drop_sequence(seq); }
  int slots() const override { return inner_->slots(); }
  bool needs_tokens(const SamplingParams& params) const override { return inner_->needs_tokens(params); }
  void submit(const StepPlan& plan, int slot) override;
  const StepResult& wait(int slot) override;

 private:
  std::unique_ptr<Executor> inner_;
  std::vector<Fault> faults_;
  struct Poisoned {
    size_t sample;
    SampleStatus status;
  };
  const StepPlan* plan_ = nullptr;               // submitted last
  std::vector<std::vector<Poisoned>> poisoned_;  // by slot: samples of the step under way that count as failed
  StepResult altered_;
};

}  // namespace octavo
