#pragma once
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

// Why something failed. Shared, so that telling it to many takes no memory.
using Reason = std::shared_ptr<const Refusal>;

// Runs what may fail, and says why it did, also where there is no memory to say it with.
class Failures {
 public:
  // The refusal that `make` makes.
  template <class Make>
  Reason explain(Make&& make) const noexcept {
    try {
      return std::make_shared<const Refusal>(make());
    } catch (const std::bad_alloc&) {
      return out_of_memory_;
    }
  }

  // What `run` throws; null when it does not.
  template <class Run>
  Reason of(Run&& run) const noexcept {
    try {
      run();
      return nullptr;
    } catch (const Error& e) {
      return explain([&] { return Refusal{e.code(), e.param(), e.what(), 0, 0}; });
    } catch (const std::bad_alloc&) {
      return out_of_memory_;
    } catch (const std::exception& e) {
      return explain([&] { return Refusal{ErrorCode::kInternal, "step", cat("a step failed: ", e.what()), 0, 0}; });
    }
  }

  // The same with a `run` that changes nothing when it throws, and is tried three times: what passes is noticed by
  // nobody.
  template <class Run>
  Reason persist(Run&& run) const noexcept {
    Reason why = of(run);
    for (int i = 0; why && i < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1 << i));
      why = of(run);
    }
    return why;
  }

 private:
  const Reason out_of_memory_ = std::make_shared<const Refusal>(
      Refusal{ErrorCode::kOutOfMemory, "memory", "the memory does not suffice to go on", 0, 0});
};

}  // namespace octavo
