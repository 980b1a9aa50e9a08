#pragma once
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "runtime/inbox.h"
#include "runtime/model_host.h"
#include "runtime/step_loop.h"

namespace octavo {

struct EngineOptions {
  int max_model_len = 0;  // 0: the model's own
  int block_size = 16;    // 8, 16 or 32
  DType kv_dtype = DType::kF16;
  int num_blocks = 0;               // 0: as many as the device has room for, on a GPU alone
  double memory_utilization = 0.9;  // with num_blocks 0: the share of what is free beside weights and steps
  int max_num_seqs = 256;
  int max_num_seqs_per_tenant = 0;  // 0: no limit of its own
  int max_num_batched_tokens = 512;
  bool enable_prefix_caching = true;
  int threads = 0;  // 0: the CPUs this process may use
  BackendChoice backend;
  bool graphs = true;       // decode steps are recorded, on devices that can
  bool screen_head = true;  // a coarse copy of the head is made, for greedy decoding
  bool trace = false;       // note where the time of steps goes
};

// The serving engine: one native thread owns scheduler and cache, plans, executes, commits and publishes. Every public
// function may be called from any thread and none needs Python.
class Engine {
 public:
  // Packs the weights. Throws Error for options and checkpoints that do not fit.
  Engine(ModelConfig config, std::shared_ptr<WeightFiles> weights, EngineOptions options);
  ~Engine();

  // Starts the engine thread; `table` says what the token ids mean.
  void start(TokenTable table);
  std::shared_ptr<Channel> open_channel() const { return std::make_shared<Channel>(); }

  std::variant<RequestId, Refusal> submit(SubmitRequest request);
  // What finds no memory on this thread throws std::bad_alloc, here and below, and is not taken.
  // A second continuation of a request's sequence that runs or ended lately; it shares the blocks there are. What can
  // only be found out on the engine thread (no such sequence or position) ends it with an error.
  std::variant<RequestId, Refusal> fork(ForkRequest fork);
  // The most tokens that each of so many sequences may have after a prompt: what asks for more is cut to it.
  int32_t new_token_limit(int64_t prompt, int32_t sequences) const;
  void cancel(RequestId id);
  void close_channel(const std::shared_ptr<Channel>& channel);  // cancels its requests

  LoopStats stats() const;  // as of the last step
  // Taken by the engine thread between two steps; waits for the one under way.
  LoopSnapshot snapshot();
  // The scheduler's last ones and what it was made with; of a started engine, also while a step hangs and after the
  // end.
  std::shared_ptr<const DecisionLog> decisions() const { return started_loop().decisions(); }
  const SchedulerConfig& scheduler_config() const { return started_loop().config(); }
  void inject_fault(const Fault& fault);  // for tests: strikes a later step
  void audit();                           // throws Error(kInternal, "audit", ...)

  // Where the time since the last call went; Error(kInvalidArgument) unless the engine was made to trace.
  std::vector<Trace::Phase> take_trace();

  // Between pause() and resume() no step runs and the memory of weights and cache stands still. Requests may be
  // submitted and cancelled meanwhile. pause() returns once the step under way has ended.
  void pause();
  void resume();
  bool paused() const { return paused_.load(); }

  // Aborts what is under way and joins the thread. Afterwards every call throws Error(kShutdown).
  void shutdown();

  const ModelHost& host() const { return *host_; }
  const EngineOptions& options() const { return options_; }
  const ModelConfig& config() const { return config_; }

 private:
  using Command = std::function<void(StepLoop&)>;

  void run();
  bool obey(std::vector<Command>& commands);  // false: some found no memory, are left and to be obeyed later
  void report();
  void post(Command command);                        // asynchronous; throws after shutdown
  void call(const std::function<void(StepLoop&)>&);  // waits; rethrows what the command throws
  void require_running() const;
  const StepLoop& started_loop() const;
  std::optional<Refusal> check_request_params(const SamplingParams& params) const;

  ModelConfig config_;
  EngineOptions options_;
  std::unique_ptr<ModelHost> host_;
  TokenTable table_;
  SchedulerConfig sched_config_;
  std::unique_ptr<Scheduler> checker_;  // check() only, from any thread
  std::unique_ptr<StepLoop> loop_;      // the engine thread's
  Inbox<Command> inbox_;
  std::thread thread_;
  pid_t owner_pid_ = 0;
  std::atomic<bool> paused_{false};
  std::atomic<bool> running_{false};
  std::atomic<RequestId> next_request_{1};
  mutable std::mutex stats_mutex_;
  LoopStats stats_;
  std::mutex lifecycle_mutex_;
};

}  // namespace octavo
