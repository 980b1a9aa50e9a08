#pragma once
#include <memory>
#include <vector>

#include "ops/backend.h"
#include "runtime/draw_state.h"
#include "runtime/executor.h"
#include "runtime/plan_batch.h"

namespace octavo {

// The draws of one step on a device: their rows, where their results come back, and what these mean. Made anew for each
// step; its memory grows to the largest step it has seen.
class StepDraws {
 public:
  StepDraws(Backend& backend, Queue& queue, int vocab);

  // Where a later step finds the tokens that this one draws, as the device sees it: [samples]
  const DrawnToken* drawn() const { return drawn_.device ? drawn_.device->as<DrawnToken>() : nullptr; }

  // Adds the draws and scores of `plan`, whose sampled sequences are `sampled`; then the masks of those with a grammar
  // must be filled before launch().
  void prepare(const StepPlan& plan, const std::vector<SampledSequence*>& sampled, SequenceStates& states,
               const PlanBatch& batch, DrawRows& rows);
  // Uploads the rows, draws and starts to download the results.
  void launch(const float* logits, const int32_t* tokens, float* changed);
  // Once the downloads have ended.
  void read(StepResult& result) const;

  int num_changed() const { return num_changed_; }

 private:
  struct Wanted {  // of a draw
    bool present = false;
    bool beam = false;
    int32_t num_best = 0;
    int64_t best = 0;
    int32_t token = -1;   // scored only
    std::string grammar;  // why its grammar cannot go on
  };
  struct Twin {  // of host and device
    std::unique_ptr<DeviceMemory> host, device;
    void grow(Backend& backend, Queue& queue, size_t bytes);
  };

  void add(DrawRow row, Wanted wanted, const SampledSequence* masked_by);
  PositionLogprobs scored(size_t draw) const;
  void list_best(size_t draw, std::vector<TokenLogprob>& out) const;

  Backend& backend_;
  Queue& queue_;
  int vocab_;
  std::vector<DrawRow> rows_;
  std::vector<Wanted> wanted_;
  std::vector<const SampledSequence*> masked_by_;  // by draw, null: no grammar
  size_t num_samples_ = 0;
  struct Scored {
    PromptScores scores;
    size_t first_draw = 0;
    size_t count = 0;
  };
  std::vector<Scored> prompts_;
  int num_changed_ = 0;
  int64_t num_best_ = 0;
  Twin inputs_, drawn_, best_;
};

}  // namespace octavo
