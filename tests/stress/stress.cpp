// stress [seconds]: clients with a channel each submit, fork, cancel and drain; others pause the engine, look at it and
// provoke faults. Every accepted request must end exactly once, and no block may be live in the end.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "runtime/engine.h"
#include "tiny_model.h"

using namespace octavo;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kClients = 6;
constexpr size_t kUnderWay = 24;  // of one client

struct Counts {
  std::atomic<int64_t> accepted{0}, ended{0}, refused{0}, cancelled{0}, failed{0}, tokens{0};
  std::atomic<bool> wrong{false};
};

void complain(Counts& counts, const char* what, RequestId id) {
  std::fprintf(stderr, "request %llu %s\n", static_cast<unsigned long long>(id), what);
  counts.wrong = true;
}

// Requests of one client: how many of their choices are still to end.
using UnderWay = std::map<RequestId, int>;

void drain(Channel& channel, UnderWay& under_way, Counts& counts) {
  for (const Delta& delta : channel.drain()) {
    counts.tokens += static_cast<int64_t>(delta.token_ids.size());
    const auto it = under_way.find(delta.id);
    if (it == under_way.end()) {
      complain(counts, "tells something after its end", delta.id);
      continue;
    }
    if (delta.finish == Finish::kNone) continue;
    counts.failed += delta.finish == Finish::kError;
    if (--it->second > 0) continue;
    ++counts.ended;
    under_way.erase(it);
  }
}

void client(Engine& engine, int number, Clock::time_point end, Counts& counts) {
  std::mt19937 random(number);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto channel = engine.open_channel();
  UnderWay under_way;
  const auto take = [&](const std::variant<RequestId, Refusal>& result, int choices) {
    if (const auto* id = std::get_if<RequestId>(&result)) {
      under_way[*id] = choices;
      ++counts.accepted;
    } else {
      ++counts.refused;
    }
  };
  while (Clock::now() < end) {
    const int what = below(10);
    if (what < 5 && under_way.size() < kUnderWay) {
      auto params = std::make_shared<SamplingParams>();
      params->n = below(6) == 0 ? 3 : 1;
      params->max_tokens = 1 + below(60);
      params->seed = random();
      params->logprobs = below(4) == 0 ? 2 : -1;
      SubmitRequest request;
      request.prompt.assign(1 + below(20) * below(20), 2 + below(3));
      request.prompt.push_back(below(97));  // 96 is refused
      request.params = params;
      request.channel = channel;
      request.tenant = static_cast<uint64_t>(number % 3);
      request.priority = below(3);
      take(engine.submit(std::move(request)), params->n);
    } else if (what == 5 && !under_way.empty() && under_way.size() < kUnderWay) {
      auto params = std::make_shared<SamplingParams>();
      params->max_tokens = 1 + below(20);
      take(engine.fork({under_way.begin()->first, 0, std::nullopt, params, channel}), 1);
    } else if (what == 6 && !under_way.empty()) {
      engine.cancel(std::next(under_way.begin(), below(static_cast<int>(under_way.size())))->first);
      ++counts.cancelled;
    } else {
      channel->wait(2);
      drain(*channel, under_way, counts);
    }
  }
  const auto patience = Clock::now() + std::chrono::seconds(60);
  while (!under_way.empty() && Clock::now() < patience) {
    channel->wait(100);
    drain(*channel, under_way, counts);
  }
  for (const auto& [id, choices] : under_way) complain(counts, "never ended", id);
}

void disturb(Engine& engine, Clock::time_point end) {
  std::mt19937 random(99);
  while (Clock::now() < end) {
    switch (random() % 6) {
      case 0:
        engine.pause();
        engine.resume();
        break;
      case 1:
        engine.snapshot();
        break;
      case 2:
        engine.audit();
        break;
      case 3:
        engine.decisions()->last();
        break;
      case 4:
        engine.inject_fault({Fault::Kind::kOutOfMemory, -1, 1, static_cast<int32_t>(random() % 20), 0});
        break;
      default: {
        // A consumer that goes away with its requests under way.
        const auto channel = engine.open_channel();
        SubmitRequest request;
        request.prompt = {5, 6, 7};
        request.params = std::make_shared<SamplingParams>();
        request.channel = channel;
        engine.submit(std::move(request));
        engine.close_channel(channel);
      }
    }
    engine.stats();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? std::atoi(argv[1]) : 60;
  const ModelConfig config = tiny_config();
  EngineOptions options;
  options.num_blocks = 120;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 64;
  options.threads = 2;
  Engine engine(config, tiny_weights(config), options);
  engine.start(tiny_table(config.vocab));

  Counts counts;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) threads.emplace_back([&, i] { client(engine, i, end, counts); });
  threads.emplace_back([&] { disturb(engine, end); });
  for (std::thread& t : threads) t.join();
  engine.audit();
  const LoopStats stats = engine.stats();
  if (stats.sched.live_blocks != 0 || stats.sched.running != 0 || stats.sched.waiting != 0) {
    std::fprintf(stderr, "%d blocks live, %d running, %d waiting\n", stats.sched.live_blocks, stats.sched.running,
                 stats.sched.waiting);
    counts.wrong = true;
  }
  engine.shutdown();
  if (counts.accepted != counts.ended) counts.wrong = true;
  std::printf(
      "%d s: %lld accepted, %lld ended, %lld refused, %lld cancelled, %lld failed, %lld tokens, %lld steps, %lld "
      "preemptions\n",
      seconds, static_cast<long long>(counts.accepted), static_cast<long long>(counts.ended),
      static_cast<long long>(counts.refused), static_cast<long long>(counts.cancelled),
      static_cast<long long>(counts.failed), static_cast<long long>(counts.tokens), static_cast<long long>(stats.steps),
      static_cast<long long>(stats.sched.preemptions));
  return counts.wrong ? 1 : 0;
}
