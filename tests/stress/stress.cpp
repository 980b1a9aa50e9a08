// stress [seconds]: rounds of an engine each, with a cache far too small for what is asked of it. Threads submit, fork,
// cancel, hang up, read slowly, have text written to sockets, pause it, look at it and provoke faults; every second
// engine is shut down under them. Every accepted request must end exactly once and say what it says on a quiet engine,
// and no block may be live in the end. What differs from round to round: instruction set, format of weights and cache,
// a window, blocks, limits.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "backend/cpu/isa.h"
#include "company.h"
#include "tiny_model.h"

using namespace octavo;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kRoundSeconds = 10;

struct Setup {
  WeightFormat weights;
  DType cache;
  int window;
  int block_size;
  int cache_tokens;
  int max_seqs_per_tenant;
  int threads;
};

constexpr Setup kSetups[] = {
    {WeightFormat::kF32, DType::kF16, 0, 16, 480, 0, 2},
    {WeightFormat::kQ8_0, DType::kF8E4M3, 0, 8, 400, 6, 3},
    {WeightFormat::kBF16, DType::kBF16, 40, 16, 480, 0, 3},
};

struct Totals {
  int64_t ended = 0, equal = 0, steps = 0, preemptions = 0;
  bool right = true;
};

void run_round(int number, Isa isa, const Setup& setup, int seconds, Totals& totals) {
  const ModelConfig config = tiny_config(setup.window);
  EngineOptions options;
  options.block_size = setup.block_size;
  options.num_blocks = setup.cache_tokens / setup.block_size;
  options.kv_dtype = setup.cache;
  options.max_num_seqs = 24;
  options.max_num_seqs_per_tenant = setup.max_seqs_per_tenant;
  options.max_num_batched_tokens = 64;
  options.threads = setup.threads;
  options.backend.isa = isa_name(isa);
  Engine engine(config, tiny_weights(config, setup.weights), options);
  engine.start(tiny_table(config.vocab));
  const std::vector<Question> questions = ask_quietly(engine, config.vocab);

  Counts counts;
  const bool shut_down = (number + number / 4) % 2 == 1;
  Company(engine, questions, counts).press(Clock::now() + std::chrono::seconds(seconds), shut_down);
  if (!shut_down) engine.audit();
  engine.shutdown();
  const LoopStats stats = engine.stats();
  if (stats.sched.live_blocks != 0 || stats.sched.running != 0 || stats.sched.waiting != 0) {
    std::fprintf(stderr, "%d blocks live, %d running, %d waiting\n", stats.sched.live_blocks, stats.sched.running,
                 stats.sched.waiting);
    counts.wrong = true;
  }
  if (counts.accepted != counts.ended) counts.wrong = true;
  const auto count = [](const std::atomic<int64_t>& n) { return static_cast<long long>(n); };
  std::printf(
      "%s, %s, cache %s%s: %lld accepted, %lld ended, %lld equal to the quiet answer, %lld cut off, %lld forks of what "
      "was forgotten, %lld hung up, %lld tokens, %lld texts written to their sockets, %lld steps, %lld failed, %lld "
      "preemptions%s\n",
      isa_name(isa), weight_format_info(setup.weights).name, dtype_name(setup.cache),
      setup.window > 0 ? ", window" : "", count(counts.accepted), count(counts.ended), count(counts.equal),
      count(counts.cut), count(counts.failed), count(counts.hung_up), count(counts.tokens), count(counts.directly),
      static_cast<long long>(stats.steps), static_cast<long long>(stats.failed_steps),
      static_cast<long long>(stats.sched.preemptions), shut_down ? ", shut down" : "");
  std::fflush(stdout);
  totals.ended += counts.ended;
  totals.equal += counts.equal;
  totals.steps += stats.steps;
  totals.preemptions += stats.sched.preemptions;
  totals.right &= !counts.wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? std::atoi(argv[1]) : 60;
  const int isas = static_cast<int>(detect_isa()) + 1;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  Totals totals;
  for (int number = 0; number == 0 || Clock::now() < end; ++number) {
    const auto isa = static_cast<Isa>(isas - 1 - number % isas);
    run_round(number, isa, kSetups[number % std::size(kSetups)], std::min(seconds, kRoundSeconds), totals);
  }
  std::printf("%lld requests ended, %lld as on a quiet engine; %lld preemptions in %lld steps: %s\n",
              static_cast<long long>(totals.ended), static_cast<long long>(totals.equal),
              static_cast<long long>(totals.preemptions), static_cast<long long>(totals.steps),
              totals.right ? "nothing is wrong" : "something is wrong");
  return totals.right && totals.equal > 0 && totals.preemptions > 0 ? 0 : 1;
}
