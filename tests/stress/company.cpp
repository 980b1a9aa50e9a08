#include "company.h"

#include <random>
#include <thread>

using namespace octavo;

namespace {

constexpr int kAskers = 4, kReaders = 3, kSessions = 5;
constexpr size_t kUnderWay = 12;  // of one session

class Dice {
 public:
  explicit Dice(int seed) : random_(seed) {}
  uint32_t any() { return random_(); }
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

 private:
  std::mt19937 random_;
};

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Runs until the engine has been shut down.
template <class Function>
void while_it_runs(Function function) {
  try {
    function();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kShutdown) throw;
  }
}

}  // namespace

Company::Company(Engine& engine, const std::vector<Question>& questions, Counts& counts)
    : engine_(engine), questions_(questions), counts_(counts) {
  for (int i = 0; i < kSessions; ++i) sessions_.push_back(std::make_shared<Session>(engine, counts));
}

std::shared_ptr<Session> Company::session(uint32_t which) {
  std::lock_guard lock(mutex_);
  return sessions_[which % sessions_.size()];
}

void Company::hang_up(uint32_t which) {
  std::shared_ptr<Session> gone = std::make_shared<Session>(engine_, counts_);
  {
    std::lock_guard lock(mutex_);
    gone.swap(sessions_[which % sessions_.size()]);
  }
  gone->close();
  const auto reading = gone->reading();
  gone->read_to_the_end();
}

void Company::ask(int number) {
  Dice dice(number);
  while (!over()) {
    const auto at = session(dice.any());
    const int what = dice.below(2000);
    if (what < 1040 && at->under_way() >= kUnderWay) {
      sleep_ms(dice.below(10));
    } else if (what < 1000) {
      const auto& question = questions_[dice.any() % questions_.size()];
      at->ask(question, static_cast<uint64_t>(dice.below(3)), dice.below(3));
    } else if (what < 1040) {
      at->fork(dice.below(2) == 0);
    } else if (what < 1055) {
      at->cancel(dice.any());
    } else if (what < 1056) {
      hang_up(dice.any());
    } else {
      sleep_ms(dice.below(10));
    }
  }
}

// Reads one session for a while, then leaves it to whoever comes; some readers are slow.
void Company::read(int number) {
  Dice dice(100 + number);
  while (!over()) {
    const auto at = session(dice.any());
    const auto reading = at->try_reading();
    if (!reading) continue;
    for (int i = dice.below(30); i >= 0; --i) {
      at->read(2);
      if (dice.below(10) == 0) sleep_ms(dice.below(100));
    }
  }
}

void Company::disturb() {
  Dice dice(99);
  // One fault at a time: several in a row that no request explains end everything in their step, as they should.
  LoopStats armed_at;
  bool armed = false;
  const auto arm = [&](Fault::Kind kind, int larger_than) {
    const LoopStats now = engine_.stats();
    if (armed && (now.failed_steps == armed_at.failed_steps || now.steps < armed_at.steps + 4)) return;
    armed = true;
    armed_at = now;
    engine_.inject_fault({kind, -1, 1, larger_than, 0, {}, 0});
  };
  while (!over()) {
    switch (dice.below(7)) {
      case 0:
        engine_.pause();
        engine_.resume();
        break;
      case 1:
        engine_.snapshot();
        break;
      case 2:
        engine_.audit();
        break;
      case 3:
        engine_.decisions()->last();
        break;
      case 4:
        arm(Fault::Kind::kOutOfMemory, dice.below(20));
        break;
      case 5:
        arm(Fault::Kind::kThrow, 0);
        break;
      default: {
        // A consumer that goes away and never reads.
        const auto channel = engine_.open_channel();
        SubmitRequest request;
        request.prompt = {5, 6, 7};
        request.params = std::make_shared<SamplingParams>();
        request.channel = channel;
        engine_.submit(std::move(request));
        engine_.close_channel(channel);
      }
    }
    engine_.stats();
    sleep_ms(5);
  }
}

void Company::press(std::chrono::steady_clock::time_point end, bool shut_down) {
  end_ = end;
  std::vector<std::thread> threads;
  for (int i = 0; i < kAskers; ++i) threads.emplace_back([this, i] { while_it_runs([&] { ask(i); }); });
  for (int i = 0; i < kReaders; ++i) threads.emplace_back([this, i] { read(i); });
  threads.emplace_back([this] { while_it_runs([&] { disturb(); }); });
  if (shut_down) {
    std::this_thread::sleep_until(end - std::chrono::milliseconds(200));
    engine_.shutdown();
  }
  for (std::thread& t : threads) t.join();
  for (const auto& s : sessions_) s->read_to_the_end();
}
