#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>

#include "answers.h"
#include "base/format.h"
#include "failing_new.h"
#include "runtime/engine.h"
#include "tiny_model.h"
#include "trials.h"

using namespace octavo;

namespace {

int thread_named(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string comm;
    if (std::getline(file, comm) && comm == name) return std::stoi(task.path().filename());
  }
  return -1;
}

SubmitRequest request(const std::shared_ptr<Channel>& channel, int i) {
  auto params = std::make_shared<SamplingParams>();
  params->n = i % 4 == 3 ? 2 : 1;
  params->max_tokens = 12 + i;
  params->seed = static_cast<uint64_t>(i);
  params->logprobs = i % 3 == 0 ? 1 : -1;
  SubmitRequest request;
  for (int t = 0; t < 40; ++t) request.prompt.push_back(2 + t % 7);
  request.prompt.push_back(20 + i);
  request.params = params;
  request.channel = channel;
  request.tenant = static_cast<uint64_t>(i % 2);
  return request;
}

// Six requests that meet in one step; the last one is cancelled while it runs.
Answers ask(Engine& engine, bool cancelled) {
  constexpr int kRequests = 6;
  Answers answers;
  const auto channel = engine.open_channel();
  std::vector<RequestId> ids;
  std::map<RequestId, RequestId> number;
  engine.pause();
  for (int i = 0; i < kRequests; ++i) {
    SubmitRequest r = request(channel, i);
    const int choices = r.params->n;
    ids.push_back(std::get<RequestId>(engine.submit(std::move(r))));
    number[ids.back()] = static_cast<RequestId>(i);
    answers.expect(static_cast<RequestId>(i), choices);
  }
  engine.resume();
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!answers.all_ended() && std::chrono::steady_clock::now() < patience) {
    channel->wait(100);
    std::vector<Delta> deltas = channel->drain();
    for (Delta& delta : deltas) delta.id = number.at(delta.id);
    answers.take(std::move(deltas));
    if (std::exchange(cancelled, false)) engine.cancel(ids.back());
  }
  if (!answers.all_ended()) answers.complain(0, "never ended");
  return answers;
}

std::unique_ptr<Engine> started() {
  const ModelConfig config = tiny_config(0);
  EngineOptions options;
  options.num_blocks = 12;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 48;
  options.threads = 1;
  auto engine = std::make_unique<Engine>(config, tiny_weights(config, WeightFormat::kF32), options);
  engine->start(tiny_table(config.vocab));
  return engine;
}

// What is wrong with an engine at rest.
void look_at(Engine& engine, Answers& answers) {
  try {
    engine.audit();
  } catch (const std::exception& e) {
    answers.complain(0, e.what());
  }
  const SchedulerStats s = engine.snapshot().stats.sched;
  if (s.live_blocks != 0 || s.running != 0 || s.waiting != 0)
    answers.complain(0, cat(s.live_blocks, " blocks live, ", s.running, " running, ", s.waiting, " waiting"));
}

// Calls until no allocation of the call fails any more; returns how many calls threw.
template <class Call>
int until_it_succeeds(Call&& call) {
  for (int k = 0;; ++k) {
    fail_allocations(gettid(), k, 1);
    try {
      call();
      stop_failing();
      return k;
    } catch (const std::bad_alloc&) {
      stop_failing();
    }
  }
}

}  // namespace

bool try_engine(int runs, int times) {
  const std::unique_ptr<Engine> owned = started();
  Engine& engine = *owned;
  const Answers quiet = ask(engine, false);
  const int tid = thread_named("octavo-engine");
  fail_allocations(tid, -1, 0);
  ask(engine, true);
  const int64_t allocations = stop_failing();

  std::string wrong = quiet.complaint();
  int hurt = 0;
  for (int i = 0; i < runs && wrong.empty(); ++i) {
    fail_allocations(tid, allocations * i / runs, times);
    Answers answers = ask(engine, true);
    stop_failing();
    look_at(engine, answers);
    answers.compare(quiet, times == 1);
    hurt += answers.failed_requests() > 0;
    if (!answers.complaint().empty()) wrong = cat("allocation ", allocations * i / runs, ":\n", answers.complaint());
  }
  const LoopStats stats = engine.stats();
  engine.shutdown();
  std::printf("engine: %lld allocations, %lld preemptions; %d failing in a row: %d runs, %d with a failed request\n%s",
              static_cast<long long>(allocations), static_cast<long long>(stats.sched.preemptions), times, runs, hurt,
              wrong.c_str());
  return wrong.empty();
}

bool try_callers() {
  const std::unique_ptr<Engine> engine = started();
  Answers answers;
  const auto channel = engine->open_channel();
  const auto accept = [&](const std::variant<RequestId, Refusal>& result, Answers::Kind kind) {
    answers.expect(std::get<RequestId>(result), 1, kind);
    return std::get<RequestId>(result);
  };
  int thrown = 0;
  std::variant<RequestId, Refusal> last;
  for (int i = 0; i < 3; ++i) {
    thrown += until_it_succeeds([&] { last = engine->submit(request(channel, i)); });
    const RequestId parent = accept(last, Answers::Kind::kPlain);
    thrown += until_it_succeeds([&] { last = engine->fork({parent, 0, std::nullopt, nullptr, channel}); });
    accept(last, Answers::Kind::kFork);
    thrown += until_it_succeeds([&] { engine->snapshot(); });
    thrown += until_it_succeeds([&] { engine->decisions(); });
    thrown += until_it_succeeds([&] { engine->audit(); });
    if (i == 2) thrown += until_it_succeeds([&] { engine->cancel(parent); });
  }
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!answers.all_ended() && std::chrono::steady_clock::now() < patience) {
    channel->wait(100);
    answers.take(channel->drain());
  }
  if (!answers.all_ended()) answers.complain(0, "never ended");
  look_at(*engine, answers);
  std::printf("callers: %d calls threw\n%s", thrown, answers.complaint().c_str());
  return answers.complaint().empty() && thrown > 0;
}
