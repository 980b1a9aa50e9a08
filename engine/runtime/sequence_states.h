#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/id_map.h"
#include "plan/step_plan.h"
#include "runtime/mask_filler.h"
#include "sample/params.h"
#include "sample/sampler_state.h"

namespace octavo {

struct DrawState;

// What sampling needs of one sequence.
struct SampledSequence {
  std::shared_ptr<const SamplingParams> params;
  SamplerState state;
  int32_t prompt_size = 0;  // tokens before its output
  uint32_t choice = 0;
  bool scored = false;          // every token's log-probability is wanted
  std::vector<int32_t> prompt;  // kept only when prompt tokens are scored
  // With a grammar.
  std::unique_ptr<Constraint> constraint;
  std::vector<uint32_t> mask;            // [(vocab + 31) / 32]
  bool masked = false;                   // the mask is that of the next token
  bool mask_late = false;                // the forward pass was done before it
  std::string grammar_error;             // why it cannot go on
  std::shared_ptr<DrawState> on_device;  // null until a device draws from it

  // The likeliest tokens that are wanted beside the one that is drawn.
  int num_best() const;
};

// The sequences of an executor, by id.
class SequenceStates {
 public:
  explicit SequenceStates(int vocab) : vocab_(vocab) {}

  void add(SeqId seq, std::shared_ptr<const SamplingParams> params, std::span<const int32_t> history, size_t num_output,
           uint32_t choice);
  void fork(SeqId parent, SeqId child, uint32_t choice);
  bool accept(SeqId seq, int32_t token);
  void list_forced(SeqId seq, std::vector<int32_t>& tokens);
  void drop(SeqId seq) { sequences_.erase(seq); }

  SampledSequence* find(SeqId seq);
  // The sequences of plan.samples, null where one is gone. Their masks are filled until finish_masks(), which is to
  // follow.
  const std::vector<SampledSequence*>& start(const StepPlan& plan);
  void finish_masks() { masks_.wait(); }
  // What a device holds of them is not to be trusted: a step has failed.
  void forget_devices();

 private:
  int vocab_;
  IdMap<std::unique_ptr<SampledSequence>> sequences_;
  std::vector<SampledSequence*> sampled_;
  MaskFiller masks_;
  std::vector<MaskFiller::Job> jobs_;
};

}  // namespace octavo
