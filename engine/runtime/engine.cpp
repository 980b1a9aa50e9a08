#include "runtime/engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <limits>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/format.h"
#include "runtime/new_token_limit.h"
#include "sample/check_params.h"

namespace octavo {

using namespace std::chrono_literals;

namespace {

// Until what found no memory is tried again.
constexpr auto kRetryAfter = 10ms;
constexpr int kFarewells = 100;  // tries to tell everybody of the shutdown

void check_options(const EngineOptions& o, const ModelConfig& config) {
  const auto refuse = [](const char* param, const std::string& message) {
    throw Error(ErrorCode::kInvalidArgument, param, message);
  };
  if (o.block_size != 8 && o.block_size != 16 && o.block_size != 32)
    refuse("block_size", cat("block_size must be 8, 16 or 32, got ", o.block_size));
  if (o.max_model_len < 1 || o.max_model_len > config.max_positions)
    refuse("max_model_len",
           cat("max_model_len must be between 1 and the model's ", config.max_positions, ", got ", o.max_model_len));
  const int fewest = o.backend.device == "cpu" ? 1 : 0;
  if (o.num_blocks < fewest) refuse("num_blocks", cat("the KV cache needs at least one block, got ", o.num_blocks));
  if (!(o.memory_utilization > 0.0 && o.memory_utilization <= 1.0))
    refuse("memory_utilization", cat("memory_utilization must be above 0 and at most 1, got ", o.memory_utilization));
  if (o.max_num_seqs < 1) refuse("max_num_seqs", cat("max_num_seqs must be at least 1, got ", o.max_num_seqs));
  if (o.max_num_seqs_per_tenant < 0)
    refuse("max_num_seqs_per_tenant",
           cat("max_num_seqs_per_tenant must be at least 0, got ", o.max_num_seqs_per_tenant));
  if (o.max_num_batched_tokens < 1)
    refuse("max_num_batched_tokens", cat("max_num_batched_tokens must be at least 1, got ", o.max_num_batched_tokens));
  if (o.threads < 0 || o.threads > 1024)
    refuse("threads", cat("threads must be between 0 (automatic) and 1024, got ", o.threads));
}

}  // namespace

Engine::Engine(ModelConfig config, std::shared_ptr<WeightFiles> weights, EngineOptions options)
    : config_(std::move(config)), options_(options), owner_pid_(getpid()) {
  if (options_.max_model_len == 0) options_.max_model_len = config_.max_positions;
  check_options(options_, config_);
  // A step must be able to hold one token of every running sequence, and never holds more than all of their windows.
  const int64_t windows = int64_t{options_.max_num_seqs} * options_.max_model_len;
  options_.max_num_batched_tokens =
      static_cast<int>(std::clamp<int64_t>(options_.max_num_batched_tokens, options_.max_num_seqs, windows));

  ModelHostOptions host;
  host.threads = options_.threads;
  host.backend = options_.backend;
  host.graphs = options_.graphs;
  host.screen_head = options_.screen_head;
  host.block_size = options_.block_size;
  host.kv_dtype = options_.kv_dtype;
  host.max_tokens = options_.max_num_batched_tokens;
  host.max_seqs = options_.max_num_seqs;
  host.max_model_len = options_.max_model_len;
  host.trace = options_.trace;
  host.num_blocks = options_.num_blocks;
  host.memory_utilization = options_.memory_utilization;
  sched_config_.block_size = options_.block_size;
  check_config(config_);
  sched_config_.max_tokens_per_step = options_.max_num_batched_tokens;
  // Short enough that nobody waits long for another tenant's step, long enough to read the weights for many tokens.
  sched_config_.shared_prompt_tokens = std::max(128, options_.max_num_batched_tokens / 4);
  sched_config_.max_seqs = options_.max_num_seqs;
  sched_config_.max_seqs_per_tenant = options_.max_num_seqs_per_tenant;
  sched_config_.max_model_len = options_.max_model_len;
  sched_config_.prefix_caching = options_.enable_prefix_caching;
  try {
    host_ = std::make_unique<ModelHost>(config_, std::move(weights), host);
    options_.num_blocks = host_->group_blocks()[0];
    sched_config_.groups.clear();
    const std::vector<KvGroup>& groups = host_->decoder().kv_groups();
    for (size_t g = 0; g < groups.size(); ++g) {
      const bool window = groups[g].retain == Retain::kWindow;
      sched_config_.groups.push_back(
          {host_->group_blocks()[g], window ? RetainBlocks::kWindow : RetainBlocks::kAll, groups[g].window});
    }
    checker_ = std::make_unique<Scheduler>(sched_config_);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kOutOfMemory, "memory",
                cat("the memory does not suffice for the model with ", options_.num_blocks, " blocks of ",
                    options_.block_size, " tokens and steps of ", options_.max_num_batched_tokens, " tokens"));
  }
}

Engine::~Engine() { shutdown(); }

void Engine::start(TokenTable table) {
  std::lock_guard lock(lifecycle_mutex_);
  if (thread_.joinable() || loop_) throw Error(ErrorCode::kInvalidArgument, "engine", "the engine was started before");
  if (table.vocab() < config_.vocab) {
    // Padding rows of the embedding stand for no text.
    table.offsets.resize(static_cast<size_t>(config_.vocab) + 1, static_cast<uint32_t>(table.bytes.size()));
    table.special.resize(static_cast<size_t>(config_.vocab), 0);
  }
  table_ = std::move(table);
  {
    std::lock_guard guard(stats_mutex_);
    loop_ = std::make_unique<StepLoop>(sched_config_, host_->executor(), table_, config_.eos_token_ids, host_->trace());
    stats_ = loop_->stats();
  }
  running_ = true;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "octavo-engine");
    host_->backend().use_device();
    run();
  });
}

void Engine::run() {
  std::vector<Command> commands;
  Trace* trace = host_->trace();
  Trace::Phase* const waiting = trace ? trace->phase("idle") : nullptr;
  Trace::Phase* const inbox = trace ? trace->phase("inbox") : nullptr;
  bool blocked = false;  // there is work, but nothing can be planned until something arrives
  for (bool all = true;;) {
    const bool idle = paused_ || blocked || !loop_->has_work();
    const bool retry = !all || loop_->must_retry();
    if (all) {
      const Trace::Span span(idle ? waiting : inbox);
      if (!inbox_.take(commands, !idle ? 0ms : retry ? kRetryAfter : inbox_.kNoLimit)) break;
    } else if (idle) {
      std::this_thread::sleep_for(kRetryAfter);
    }
    all = obey(commands);
    if (!all && !running_) {  // a shutdown waits for no memory
      commands.clear();
      all = true;
    }
    blocked = false;
    if (!paused_ && loop_->has_work()) blocked = !loop_->step();
    report();
  }
  loop_->cancel_all();
  loop_->drain();
  report();
  for (int i = 0; i < kFarewells && loop_->untold(); ++i) {
    std::this_thread::sleep_for(kRetryAfter);
    report();
  }
}

bool Engine::obey(std::vector<Command>& commands) {
  auto next = commands.begin();
  try {
    for (; next != commands.end(); ++next) (*next)(*loop_);
  } catch (const std::bad_alloc&) {
  }
  commands.erase(commands.begin(), next);
  return commands.empty();
}

// The counters first: who has read the end of a request does not find it running.
void Engine::report() {
  try {
    LoopStats stats = loop_->stats();
    std::lock_guard lock(stats_mutex_);
    stats_ = std::move(stats);
  } catch (const std::bad_alloc&) {  // those of the turn before stand for them
  }
  loop_->publish();
}

void Engine::require_running() const {
  if (getpid() != owner_pid_)
    throw Error(ErrorCode::kShutdown, "engine",
                "the engine was created in another process: after a fork, create it in the child");
  if (!running_) throw Error(ErrorCode::kShutdown, "engine", "the engine is not running");
}

void Engine::post(Command command) {
  require_running();
  if (!inbox_.push(std::move(command))) throw Error(ErrorCode::kShutdown, "engine", "the engine has been shut down");
}

void Engine::call(const std::function<void(StepLoop&)>& command) {
  auto done = std::make_shared<std::promise<void>>();
  auto result = done->get_future();
  post([command, done](StepLoop& loop) {
    try {
      command(loop);
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  result.get();
}

std::variant<RequestId, Refusal> Engine::submit(SubmitRequest request) {
  require_running();
  const double arrival = monotonic_seconds();
  if (auto refusal = check_request_params(*request.params)) return *refusal;
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const int32_t id = request.prompt[i];
    if (id < 0 || id >= config_.vocab)
      return Refusal{
          ErrorCode::kInvalidArgument, "prompt",
          cat("token id ", id, " at prompt position ", i, " is out of vocabulary (0 to ", config_.vocab - 1, ")"), id,
          config_.vocab - 1};
  }
  RequestSpec spec;
  spec.seqs.resize(static_cast<size_t>(num_sequences(*request.params)));
  spec.prompt = request.prompt;
  spec.max_new_tokens = request.params->max_tokens;
  spec.prefix_namespace = request.prefix_namespace;
  spec.shared_tokens = request.shared_tokens;
  if (auto refusal = checker_->check(spec)) return *refusal;
  const RequestId id = next_request_.fetch_add(1);
  post([id, request = std::move(request), arrival](StepLoop& loop) mutable { loop.add(id, request, arrival); });
  return id;
}

std::variant<RequestId, Refusal> Engine::fork(ForkRequest fork) {
  require_running();
  const double arrival = monotonic_seconds();
  if (fork.params) {
    if (auto refusal = check_request_params(*fork.params)) return *refusal;
    RequestSpec spec;
    spec.seqs.resize(static_cast<size_t>(num_sequences(*fork.params)));
    spec.max_new_tokens = fork.params->max_tokens;
    // A position that is none is told when the sequence is known.
    if (auto refusal = checker_->check(spec, std::max(1, fork.position.value_or(1)))) return *refusal;
  }
  const RequestId id = next_request_.fetch_add(1);
  post([id, fork = std::move(fork), arrival](StepLoop& loop) { loop.fork(id, fork, arrival); });
  return id;
}

std::optional<Refusal> Engine::check_request_params(const SamplingParams& params) const {
  if (auto refusal = check_params(params, config_.vocab)) return refusal;
  const int32_t width = num_sequences(params);
  const bool own_limit = options_.max_num_seqs_per_tenant > 0;
  const int most =
      own_limit ? std::min(options_.max_num_seqs, options_.max_num_seqs_per_tenant) : options_.max_num_seqs;
  if (width <= most) return std::nullopt;
  const char* name = params.beam_width > 0 ? "beam_width" : params.best_of > params.n ? "best_of" : "n";
  const char* limit = most == options_.max_num_seqs ? "max_num_seqs" : "max_num_seqs_per_tenant";
  return Refusal{ErrorCode::kInvalidArgument, name,
                 cat(name, " must be at most ", limit, ", the ", most, " sequences that run at once, got ", width),
                 width, most};
}

int32_t Engine::new_token_limit(int64_t prompt, int32_t sequences) const {
  if (prompt < 0) throw Error(ErrorCode::kInvalidArgument, "prompt", cat("prompt must be at least 0, got ", prompt));
  if (sequences < 1)
    throw Error(ErrorCode::kInvalidArgument, "sequences", cat("sequences must be at least 1, got ", sequences));
  constexpr int32_t kAnyNumber = std::numeric_limits<int32_t>::max();
  return std::max(0, octavo::new_token_limit(sched_config_, prompt, sequences, kAnyNumber));
}

void Engine::cancel(RequestId id) {
  post([id](StepLoop& loop) { loop.cancel(id); });
}

void Engine::close_channel(const std::shared_ptr<Channel>& channel) {
  if (getpid() != owner_pid_ || !running_) return;
  inbox_.push([channel](StepLoop& loop) { loop.cancel_channel(channel.get()); });
}

LoopStats Engine::stats() const {
  std::lock_guard lock(stats_mutex_);
  return stats_;
}

LoopSnapshot Engine::snapshot() {
  LoopSnapshot out;
  call([&out](StepLoop& loop) { out = loop.snapshot(); });
  return out;
}

const StepLoop& Engine::started_loop() const {
  std::lock_guard lock(stats_mutex_);
  if (!loop_) throw Error(ErrorCode::kInvalidArgument, "engine", "the engine was not started");
  return *loop_;
}

std::vector<Trace::Phase> Engine::take_trace() {
  Trace* trace = host_->trace();
  if (!trace) throw Error(ErrorCode::kInvalidArgument, "trace", "the engine was made without trace");
  std::vector<Trace::Phase> phases;
  call([&](StepLoop&) {
    phases.assign(trace->phases().begin(), trace->phases().end());
    trace->clear();
  });
  return phases;
}

void Engine::inject_fault(const Fault& fault) {
  Trace* trace = host_->trace();
  if (!fault.phase.empty() && !trace)
    throw Error(ErrorCode::kInvalidArgument, "phase", "the phases of a step are known only to an engine that traces");
  call([this, fault, trace](StepLoop&) {
    if (fault.phase.empty()) {
      host_->executor().arm(fault);
    } else {
      host_->executor().arm(fault, *trace);
    }
  });
}

void Engine::audit() {
  call([](StepLoop& loop) { loop.audit(); });
}

void Engine::pause() {
  call([this](StepLoop& loop) {
    loop.drain();
    paused_ = true;
  });
}

void Engine::resume() {
  call([this](StepLoop&) { paused_ = false; });
}

void Engine::shutdown() {
  if (getpid() != owner_pid_) {
    if (thread_.joinable()) thread_.detach();  // it does not exist in a forked child
    return;
  }
  std::lock_guard lock(lifecycle_mutex_);
  running_ = false;
  inbox_.close();
  if (thread_.joinable()) thread_.join();
}

}  // namespace octavo
