#include "sched/decision_log.h"

#include <algorithm>

namespace octavo {

// Every store releases those before it and every load acquires: a reader that sees any part of a new entry sees its
// `next` changed too. On x86 both are plain moves.
void DecisionLog::note(DecisionKind kind, StepId step, RequestId request,
                       std::array<int64_t, Decision::kValues> values) {
  const uint64_t number = total_.load(std::memory_order_relaxed);
  Entry& e = ring_[number % ring_.size()];
  e.next.store(0, std::memory_order_release);
  e.kind.store(static_cast<uint64_t>(kind), std::memory_order_release);
  e.step.store(step, std::memory_order_release);
  e.request.store(request, std::memory_order_release);
  for (size_t i = 0; i < values.size(); ++i) e.values[i].store(values[i], std::memory_order_release);
  e.next.store(number + 1, std::memory_order_release);
  total_.store(number + 1, std::memory_order_release);
}

bool DecisionLog::read(uint64_t number, Decision& out) const {
  const Entry& e = ring_[number % ring_.size()];
  if (e.next.load(std::memory_order_acquire) != number + 1) return false;
  out.kind = static_cast<DecisionKind>(e.kind.load(std::memory_order_acquire));
  out.step = e.step.load(std::memory_order_acquire);
  out.request = e.request.load(std::memory_order_acquire);
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] = e.values[i].load(std::memory_order_acquire);
  return e.next.load(std::memory_order_relaxed) == number + 1;
}

std::vector<Decision> DecisionLog::last() const {
  const uint64_t end = total();
  const uint64_t n = std::min<uint64_t>(end, ring_.size());
  std::vector<Decision> out;
  out.reserve(n);
  Decision decision;
  for (uint64_t i = end - n; i < end; ++i) {
    if (read(i, decision)) out.push_back(decision);
  }
  return out;
}

}  // namespace octavo
