#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/id_map.h"
#include "base/trace.h"
#include "runtime/executor.h"
#include "runtime/failures.h"
#include "runtime/finished_histories.h"
#include "runtime/request.h"
#include "sched/scheduler.h"
#include "text/token_table.h"

namespace octavo {

struct LoopStats {
  SchedulerStats sched;
  int64_t steps = 0;
  int64_t step_tokens = 0;  // tokens of all steps
  std::array<int64_t, 15>
      step_sizes{};           // [i]: steps of at most 2^i tokens, beyond those counted before; the last: of more
  int64_t prompt_tokens = 0;  // of admitted requests
  int64_t generation_tokens = 0;
  int64_t forced_tokens = 0;  // of them, those that a grammar left no choice about and nobody sampled
  int64_t failed_steps = 0;
  int64_t shrunk_steps = 0;  // of them, those after which smaller ones were tried: memory was short
  int64_t non_finite_rows = 0;
  std::string device_lost;  // why no step can succeed any more in this process; empty: it works
  double last_step = 0;     // monotonic seconds
  int64_t host_ns = 0;      // time in the loop outside the executor
  int64_t execute_ns = 0;
  int64_t submit_ns = 0;  // of it, until the steps were under way
};

// The scheduler between two steps, and the counters of the same moment.
struct LoopSnapshot {
  SchedulerSnapshot sched;
  LoopStats stats;
  double time = 0;             // monotonic seconds
  std::vector<double> waited;  // seconds, of sched.waiting
};

// One turn of the engine: plan, execute, commit; then publish. Owned by one thread; knows nothing of threads itself.
// Where an allocation fails outside the executor, what was begun is undone and tried again; what cannot be done so ends
// the request that it was done for, and whoever ended is told so as soon as there is memory for it.
class StepLoop {
 public:
  StepLoop(SchedulerConfig config, Executor& executor, const TokenTable& table, std::vector<int32_t> eos_token_ids,
           Trace* trace = nullptr);

  // What is wrong with a request is told through its channel, as is that memory does not suffice for it. Where it does
  // not suffice to say so either, this throws std::bad_alloc, has changed nothing, `submit` included, and is to be
  // called again.
  void add(RequestId id, SubmitRequest& submit, double arrival);
  // The same with a continuation of another request's sequence.
  void fork(RequestId id, const ForkRequest& fork, double arrival);
  void cancel(RequestId id);
  // Ends every request of the channel, whose consumer has gone.
  void cancel_channel(const Channel* channel);
  void cancel_all();

  bool has_work() const { return scheduler_.has_work(); }
  // Starts as many steps as can be planned and the executor has slots for, and commits the oldest under way. False when
  // nothing moved: nothing can be planned until a request arrives or goes.
  bool step();
  // Commits every step under way and starts no other.
  void drain();
  // Hands over what steps and cancels have told since the last call; what finds no memory stays for the next.
  void publish();
  // Something has been told and not been handed over.
  bool untold() const { return !over_.empty() || !outgoing_.empty(); }
  // Something found no memory and waits to be tried again: call step() and publish() before long.
  bool must_retry() const { return untold() || (failed_plans_ > 0 && has_work()); }

  LoopStats stats() const;
  LoopSnapshot snapshot() const;
  std::shared_ptr<const DecisionLog> decisions() const { return scheduler_.decisions(); }
  const SchedulerConfig& config() const { return config_; }
  void audit() const;

 private:
  void enter(RequestId id, SubmitRequest& submit, double arrival);
  bool may_submit() const;
  bool submit_next(bool& moved);
  void finish_oldest();
  bool take_events();  // true when requests ended
  void commit(const StepPlan& plan, const StepResult& result);
  void prefetch(const StepPlan& plan) const;
  void take_scores(Request& request, const PromptScores& scores);
  void take_sample(Request& request, int32_t index, SeqId parent, const SampleRow& sample, const SampleOutput& output);
  void commit_choice(Request& request, int32_t index, SeqId parent, const SampleRow& sample,
                     const SampleOutput& output);
  bool take_tokens(Request& request, Choice& choice, SeqId seq, const SampleOutput& output);
  void commit_beams(Request& request);
  void answer_with_beams(Request& request);
  void fault(Request& request, SeqId seq, const Reason& why);
  Reason status_reason(const Request& request, SampleStatus status, int32_t position, const std::string& told);
  void abandon(const StepPlan& plan, const Reason& why);
  void fail_plan(const Reason& why);
  void fail_step(const StepPlan& plan, const Reason& why);
  void end_all(const Reason& why);
  StepPlan with_known_tokens(const StepPlan& plan) const;
  bool shrink(const StepPlan& plan, std::vector<SeqId>& guilty);
  void regrow();
  void end_request(Request& request, Finish why, const Reason& error);
  void finish(Request& request);
  void keep_histories(Request& request);
  void drop_sequence(SeqId seq);
  std::optional<Refusal> start_of_fork(const ForkRequest& fork, SubmitRequest& submit);
  void refuse(RequestId id, const SubmitRequest& submit, const Reason& why, double arrival);
  void tell_end(Request& request);
  void tell(Request& request, Choice& choice);
  std::vector<Delta>& outgoing(const std::shared_ptr<Channel>& channel);

  SchedulerConfig config_;
  Scheduler scheduler_;
  Executor& executor_;
  const TokenTable& table_;
  std::vector<int32_t> eos_;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  struct Owner {
    Request* request = nullptr;
    int32_t index = 0;  // of its choice or beam
  };
  IdMap<Owner> owners_;
  std::vector<Request*> over_;  // have ended and are to be told so; room for all
  FinishedHistories histories_;
  struct StepUnderWay {
    const StepPlan* plan;
    int slot;
    Reason failure;  // it could not be submitted
  };
  std::vector<StepUnderWay> under_way_;  // oldest first
  int next_slot_ = 0;
  SeqId next_seq_ = 1;
  struct Outgoing {
    std::shared_ptr<Channel> channel;
    std::vector<Delta> deltas;
  };
  std::vector<Outgoing> outgoing_;  // one entry per channel, taken out by publish()
  std::vector<Delta> spare_;        // empty: the room that a channel gave back
  size_t step_samples_ = 0;         // of the latest step
  StepOutcome outcome_;
  std::vector<int32_t> taken_;       // the token that was drawn and those that it forces
  std::vector<Request*> searching_;  // beam searches that the step sampled
  std::vector<SeqId> guilty_;        // whom a failed step is laid to
  const Failures failures_;
  static constexpr int kRetries = 2;
  // Plans that fail in a row before everybody ends for it: a second, as the engine thread waits between them.
  static constexpr int kPlanRetries = 100;
  int failed_plans_ = 0;
  // Memory was short: 0, or the most tokens of a step and of one prompt in it. They double after some good steps.
  static constexpr int kStepsToRegrow = 32;
  int32_t step_limit_ = 0;
  int32_t chunk_limit_ = 0;
  int good_steps_ = 0;
  Reason lost_;                   // the device, with everything on it
  int unexplained_failures_ = 0;  // in a row: steps that threw though none of their rows does alone
  LoopStats stats_;
  struct Phases {
    Trace::Phase *plan = nullptr, *execute = nullptr, *commit = nullptr, *publish = nullptr;
  };
  Phases phases_;
};

}  // namespace octavo
