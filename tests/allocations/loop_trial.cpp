#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <new>

#include "answers.h"
#include "base/format.h"
#include "failing_new.h"
#include "hash_executor.h"
#include "runtime/step_loop.h"
#include "tiny_model.h"
#include "trials.h"

using namespace octavo;

namespace {

constexpr int kVocab = 96;
constexpr int kMaxTurns = 4000;

// Something that is asked of the loop before turn `at`.
struct Ask {
  int at = 0;
  int choices = 0;  // that are told something; 0: nothing is
  Answers::Kind kind = Answers::Kind::kPlain;
  std::function<void(StepLoop&, RequestId id, const std::shared_ptr<Channel>&)> what;
};

std::vector<int32_t> prompt(int length, int32_t first, int32_t own) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < length; ++i) tokens.push_back(2 + (first + i) % 90);
  tokens.push_back(own);
  return tokens;
}

Ask request(int at, std::vector<int32_t> tokens, const SamplingParams& params, uint64_t tenant = 0,
            int32_t priority = 0) {
  const int choices = params.n;
  const auto shared = std::make_shared<const SamplingParams>(params);
  const bool ranked = params.best_of > params.n || params.beam_width > 0;
  return {at, choices, ranked ? Answers::Kind::kRanked : Answers::Kind::kPlain,
          [=](StepLoop& loop, RequestId id, const std::shared_ptr<Channel>& channel) {
            SubmitRequest submit;
            submit.prompt = tokens;
            submit.params = shared;
            submit.channel = channel;
            submit.tenant = tenant;
            submit.priority = priority;
            loop.add(id, submit, 0);
          }};
}

Ask fork(int at, RequestId parent, int32_t position, const SamplingParams& params) {
  const auto shared = std::make_shared<const SamplingParams>(params);
  return {at, params.n, Answers::Kind::kFork,
          [=](StepLoop& loop, RequestId id, const std::shared_ptr<Channel>& channel) {
            loop.fork(id, {parent, 0, position, shared, channel}, 0);
          }};
}

Ask cancel(int at, RequestId id) {
  return {at, 0, Answers::Kind::kPlain,
          [=](StepLoop& loop, RequestId, const std::shared_ptr<Channel>&) { loop.cancel(id); }};
}

SamplingParams params(int32_t max_tokens, uint64_t seed = 0) {
  SamplingParams p;
  p.max_tokens = max_tokens;
  p.seed = seed;
  return p;
}

// Prefixes in common, choices that fork, ranked ones and beams, scores, stop strings, tenants and priorities, in a pool
// too small for all of them. Request i is the i-th of the list, from 1.
std::vector<Ask> workload(bool cancelled) {
  std::vector<Ask> asks;
  SamplingParams p = params(14, 1);
  asks.push_back(request(0, prompt(21, 0, 1), p));
  asks.push_back(request(0, prompt(21, 0, 2), p));
  p.n = 3;
  asks.push_back(request(0, prompt(21, 0, 3), p));
  p.best_of = 3;
  p.n = 2;
  asks.push_back(request(1, prompt(9, 40, 4), p, 1));
  p = params(8, 2);
  p.beam_width = 3;
  p.n = 2;
  asks.push_back(request(2, prompt(10, 0, 5), p, 1));
  p = params(9, 3);
  p.logprobs = 2;
  p.prompt_logprobs = 1;
  asks.push_back(request(3, prompt(13, 0, 6), p, 2));
  p = params(40, 4);
  p.stop = {"ab", "Q", "7"};
  p.frequency_penalty = 0.5f;
  asks.push_back(request(4, prompt(5, 60, 7), p, 2, -1));
  asks.push_back(request(5, prompt(21, 0, 8), params(30, 5), 0, -1));
  asks.push_back(fork(9, 1, 25, params(6, 6)));
  p = params(6, 7);
  p.n = 2;
  asks.push_back(fork(16, 2, 20, p));
  asks.push_back(request(12, prompt(33, 0, 9), params(12, 8), 3));
  if (cancelled) {
    asks.push_back(cancel(7, 3));
    asks.push_back(cancel(11, 8));
  }
  return asks;
}

HashModel model(int slots, bool windows) {
  HashModel m;
  m.sched.block_size = 4;
  m.sched.groups = {{34, RetainBlocks::kAll, 0}};
  if (windows) m.sched.groups.push_back({30, RetainBlocks::kWindow, 10});
  m.sched.max_tokens_per_step = 24;
  m.sched.max_seqs = 9;
  m.sched.max_model_len = 80;
  m.slots = slots;
  m.vocab = kVocab;
  return m;
}

struct Run {
  Answers answers;
  int64_t allocations = 0;
  LoopStats stats;
};

// As the engine's thread does it: what finds no memory is obeyed, planned and told in a later turn.
Run run(const HashModel& m, const std::vector<Ask>& asks, int64_t first, int64_t times) {
  static const TokenTable table = tiny_table(kVocab);
  Run out;
  HashExecutor executor(m);
  StepLoop loop(m.sched, executor, table, {1});
  const auto channel = std::make_shared<Channel>();
  RequestId next_id = 1;
  std::vector<std::pair<const Ask*, RequestId>> todo;
  for (const Ask& ask : asks) {
    const RequestId id = ask.choices > 0 ? next_id++ : 0;
    todo.emplace_back(&ask, id);
    if (ask.choices > 0) out.answers.expect(id, ask.choices, ask.kind);
  }
  std::ranges::stable_sort(todo, {}, [](const auto& t) { return t.first->at; });

  const int tid = gettid();
  auto next = todo.begin();
  for (int turn = 0; turn < kMaxTurns && !(next == todo.end() && out.answers.all_ended() && !loop.has_work()); ++turn) {
    fail_allocations(tid, first - out.allocations, times);
    try {
      for (; next != todo.end() && next->first->at <= turn; ++next) next->first->what(loop, next->second, channel);
    } catch (const std::bad_alloc&) {
    }
    loop.step();
    loop.publish();
    out.allocations += stop_failing();
    out.answers.take(channel->drain());
    try {
      loop.audit();
    } catch (const std::exception& e) {
      out.answers.complain(0, cat("turn ", turn, ": ", e.what()));
      return out;
    }
  }
  if (!out.answers.all_ended() || loop.has_work() || loop.must_retry()) out.answers.complain(0, "never ended");
  out.stats = loop.stats();
  const SchedulerStats& s = out.stats.sched;
  if (s.live_blocks != 0 || s.running != 0 || s.waiting != 0)
    out.answers.complain(0, cat(s.live_blocks, " blocks live, ", s.running, " running, ", s.waiting, " waiting"));
  return out;
}

}  // namespace

bool try_loop(int slots, bool windows, int times) {
  const HashModel m = model(slots, windows);
  const Run quiet = run(m, workload(false), -1, 0);
  const std::vector<Ask> asks = workload(true);
  const Run whole = run(m, asks, -1, 0);
  std::string wrong = quiet.answers.complaint() + whole.answers.complaint();
  if (whole.stats.sched.preemptions == 0) wrong += "nothing was preempted\n";
  int64_t runs = 0, hurt = 0;
  for (int64_t k = 0; k < whole.allocations && wrong.empty(); k += times, ++runs) {
    Run r = run(m, asks, k, times);
    r.answers.compare(quiet.answers, times == 1);
    hurt += r.answers.failed_requests() > 0;
    if (!r.answers.complaint().empty()) wrong = cat("allocation ", k, ":\n", r.answers.complaint());
  }
  std::printf(
      "loop, %d slots%s: %lld allocations, %lld preemptions; %d failing in a row: %lld runs, %lld with a failed "
      "request\n%s",
      slots, windows ? ", windows" : "", static_cast<long long>(whole.allocations),
      static_cast<long long>(whole.stats.sched.preemptions), times, static_cast<long long>(runs),
      static_cast<long long>(hurt), wrong.c_str());
  return wrong.empty();
}
