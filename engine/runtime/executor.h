#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/step_plan.h"
#include "sample/logprobs.h"
#include "sample/params.h"
#include "sample/score.h"

namespace octavo {

struct SampleOutput {
  SampleStatus status = SampleStatus::kOk;
  std::string why;                       // with kGrammar
  int32_t token = -1;                    // with kOk
  PositionLogprobs logprobs;             // filled when the sequence's params ask for logprobs or rank by them
  std::vector<TokenLogprob> candidates;  // of a beam: the likeliest tokens, best first; then no token is drawn
};

// Scores of prompt tokens: entry i of `scores` belongs to the prompt token at position first_pos + i.
struct PromptScores {
  SeqId seq = 0;
  int32_t first_pos = 0;
  SampleStatus status = SampleStatus::kOk;  // the first that is not kOk
  std::vector<PositionLogprobs> scores;
};

struct StepResult {
  std::vector<SampleOutput> samples;        // one per StepPlan::samples
  std::vector<PromptScores> prompt_scores;  // one per row with LogitsWanted::kRange
};

// Carries out step plans. It owns what sampling needs of each sequence, keyed by id, so that a plan stays integers
// only.
class Executor {
 public:
  virtual ~Executor() = default;

  // `history`: the prompt, of which the last `num_output` tokens were generated earlier and count as output.
  virtual void add_sequence(SeqId seq, std::shared_ptr<const SamplingParams> params, std::span<const int32_t> history,
                            size_t num_output, uint32_t choice) = 0;
  virtual void fork_sequence(SeqId parent, SeqId child, uint32_t choice) = 0;
  // The token is now part of the sequence. True: its grammar lets nothing follow. Throws Error where the grammar does
  // not allow it.
  virtual bool accept(SeqId seq, int32_t token) = 0;
  // Appends the tokens that the sequence's grammar leaves no choice about.
  virtual void list_forced(SeqId seq, std::vector<int32_t>& tokens) = 0;
  virtual void drop_sequence(SeqId seq) = 0;
  // Whether the last step that drew for the sequence had everything before the mask of its grammar, where that is
  // known.
  virtual bool waited_for_mask(SeqId) { return false; }

  // Steps that may be under way at once. With two, sequences may be added, forked, dropped and accept tokens while
  // steps run, and a row may take its token from the step before: PlanRow::from_row.
  virtual int slots() const = 0;
  // The sequence's tokens must be accepted before its next one can be drawn.
  virtual bool needs_tokens(const SamplingParams& params) const = 0;

  // Starts a step in `slot`; the plan must stay valid until wait(slot) returns. Throws when the step cannot be done;
  // then nothing of it counts.
  virtual void submit(const StepPlan& plan, int slot) = 0;
  // Waits for the oldest step under way. Throws when it failed. Valid until the slot is used again.
  virtual const StepResult& wait(int slot) = 0;
};

}  // namespace octavo
