#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/trace.h"
#include "model/batch.h"
#include "model/decoder.h"
#include "model/step_inputs.h"
#include "ops/backend.h"
#include "runtime/executor.h"
#include "runtime/mask_filler.h"
#include "sample/sampler.h"

namespace octavo {

// The executor of one process and one device: it runs a step at once, on the thread that submits it, with the queue's
// workers. Everything it needs is allocated when it is made, for the largest step.
class LocalExecutor final : public Executor {
 public:
  struct Limits {
    int max_tokens = 0;
    int max_seqs = 0;
    int max_blocks_per_seq = 0;
    int threads = 1;
  };
  LocalExecutor(Backend& backend, Queue& queue, Decoder& decoder, std::vector<KvPool*> pools, const Limits& limits,
                Trace* trace = nullptr);

  void add_sequence(SeqId seq, std::shared_ptr<const SamplingParams> params, std::span<const int32_t> history,
                    size_t num_output, uint32_t choice) override;
  void fork_sequence(SeqId parent, SeqId child, uint32_t choice) override;
  bool accept(SeqId seq, int32_t token) override;
  void list_forced(SeqId seq, std::vector<int32_t>& tokens) override;
  void drop_sequence(SeqId seq) override;
  int slots() const override { return 1; }
  bool needs_tokens(const SamplingParams&) const override { return true; }
  void submit(const StepPlan& plan, int slot) override;
  const StepResult& wait(int slot) override;

 private:
  struct Sequence {
    std::shared_ptr<const SamplingParams> params;
    SamplerState state;
    uint32_t choice = 0;
    bool scored = false;          // every token's log-probability is wanted
    std::vector<int32_t> prompt;  // kept only when prompt tokens are scored
    // With a grammar.
    std::unique_ptr<Constraint> constraint;
    std::vector<uint32_t> mask;  // [(vocab + 31) / 32]
    bool masked = false;         // the mask is that of the next token
    std::string grammar_error;   // why it cannot go on
  };

  void build_batch(const StepPlan& plan);
  void start_masks(const StepPlan& plan);
  void draw(const StepPlan& plan, StepResult& result);
  void score_prompts(const StepPlan& plan, StepResult& result);
  const float* logits_of(int token) const;
  void fetch_logits(int rows);

  Backend& backend_;
  Queue& queue_;
  Decoder& decoder_;
  std::vector<KvPool*> pools_;
  Limits limits_;
  struct Phases {
    Trace::Phase *batch = nullptr, *sample = nullptr, *score = nullptr;
  };
  Phases phases_;
  std::unordered_map<SeqId, Sequence> sequences_;
  StepResult result_;

  // The batch of the step under way; capacities are those of the largest step.
  std::vector<int32_t> tokens_, positions_, logit_tokens_, logit_row_;
  std::vector<std::vector<AttentionRow>> rows_;
  std::vector<std::vector<SlotCopy>> copies_;
  std::vector<HostBatch::Group> groups_;
  std::vector<AttentionPrefixGroup> prefix_groups_;
  HostBatch batch_;
  StepInputs inputs_;
  std::unique_ptr<DeviceMemory> logits_;
  std::unique_ptr<DeviceMemory> host_logits_;  // null where logits_ is host memory
  std::vector<SampleScratch> scratch_;         // one per thread
  std::vector<Sequence*> sampled_;
  MaskFiller masks_;
  std::vector<MaskFiller::Job> mask_jobs_;
};

}  // namespace octavo
