#pragma once
#include <memory>
#include <vector>

#include "base/trace.h"
#include "model/batch.h"
#include "model/decoder.h"
#include "model/step_inputs.h"
#include "ops/backend.h"
#include "runtime/plan_batch.h"
#include "runtime/stateful_executor.h"
#include "sample/sampler.h"

namespace octavo {

// The executor of a backend whose ops are done when they return: it runs a step at once, on the thread that submits it,
// with the queue's workers. Everything it needs is allocated when it is made, for the largest step.
class LocalExecutor final : public StatefulExecutor {
 public:
  struct Limits {
    int max_tokens = 0;
    int max_seqs = 0;
    int max_blocks_per_seq = 0;
    int threads = 1;
  };
  LocalExecutor(Backend& backend, Queue& queue, Decoder& decoder, std::vector<KvPool*> pools, const Limits& limits,
                Trace* trace = nullptr);

  int slots() const override { return 1; }
  bool needs_tokens(const SamplingParams&) const override { return true; }
  void submit(const StepPlan& plan, int slot) override;
  const StepResult& wait(int slot) override;
  bool waited_for_mask(SeqId seq) override {
    const SampledSequence* s = states_.find(seq);
    return s != nullptr && s->mask_late;
  }

 private:
  ForwardBatch& stage(const StepPlan& plan);
  void draw(const StepPlan& plan, const std::vector<SampledSequence*>& sampled, StepResult& result);
  void score_prompts(const StepPlan& plan, StepResult& result);
  const float* logits_of(int token) const;

  Queue& queue_;
  Decoder& decoder_;
  std::vector<KvPool*> pools_;
  Limits limits_;
  struct Phases {
    Trace::Phase *batch = nullptr, *sample = nullptr, *score = nullptr;
  };
  Phases phases_;
  StepResult result_;

  PlanBatch plan_batch_;
  StepInputs inputs_;
  std::unique_ptr<DeviceMemory> logits_;
  std::vector<SampleScratch> scratch_;  // one per thread
};

}  // namespace octavo
