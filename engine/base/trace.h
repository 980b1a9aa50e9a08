#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"

namespace octavo {

// Time summed by name, on one thread. Whoever may be traced holds pointers to phases that are null while tracing is
// off: then a span costs one branch.
class Trace {
 public:
  struct Phase {
    std::string name;
    int64_t count = 0;
    int64_t ns = 0;
    std::function<void()> on_enter = {};  // for tests: may throw, as if the phase did
  };

  // The phase of that name, which stays where it is.
  Phase* phase(const std::string& name) {
    for (Phase& p : phases_)
      if (p.name == name) return &p;
    return &phases_.emplace_back(Phase{name});
  }
  const std::deque<Phase>& phases() const { return phases_; }
  std::deque<Phase>& phases() { return phases_; }
  void clear() {
    for (Phase& p : phases_) p.count = p.ns = 0;
  }

  static void enter(Phase* phase) {
    if (phase && phase->on_enter) phase->on_enter();
  }

  class Span {
   public:
    explicit Span(Phase* phase) : phase_(phase) {
      if (!phase_) return;
      enter(phase_);
      begin_ = monotonic_ns();
    }
    ~Span() {
      if (!phase_) return;
      phase_->ns += monotonic_ns() - begin_;
      ++phase_->count;
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Phase* phase_;
    int64_t begin_ = 0;
  };

 private:
  std::deque<Phase> phases_;
};

// How long each parallel region of an op took, in order; regions beyond the last place add to it.
struct RegionTimes {
  static constexpr int kPlaces = 4;
  int count = 0;
  int64_t ns[kPlaces] = {};

  void add(int64_t time) {
    if (count < kPlaces) ns[count++] = 0;
    ns[count - 1] += time;
  }
};

}  // namespace octavo
