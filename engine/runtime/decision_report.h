#pragma once
#include <sys/types.h>

#include <memory>
#include <string>

#include "sched/decision_log.h"

namespace octavo {

// The last decisions as text in a file, for whoever wants to know what a process did that died: lines of JSON, oldest
// first. write() puts them there; a fatal signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) does so once more before it
// goes to whom it went to before. Signals know no objects, so a process has one report at a time.
class DecisionReport {
 public:
  // The file `fd` stays open as long as this lives; its bytes [at, at + size) are the report's. Throws
  // Error(kInvalidArgument, "report", ...) where there is one already.
  DecisionReport(std::shared_ptr<const DecisionLog> log, int fd, off_t at, size_t size);
  ~DecisionReport();
  DecisionReport(const DecisionReport&) = delete;
  DecisionReport& operator=(const DecisionReport&) = delete;

  // As many of the last decisions as there is room for. By one thread; the signal has a buffer of its own.
  void write() noexcept { fill(text_); }

 private:
  void fill(std::string& text) const noexcept;
  static void on_signal(int number);

  std::shared_ptr<const DecisionLog> log_;
  int fd_;
  off_t at_;
  std::string text_, last_text_;  // [size]
};

}  // namespace octavo
