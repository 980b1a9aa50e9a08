#pragma once
#include <chrono>

#include "session.h"

// Threads that ask, hang up, read and look at one engine until `end`, or until it is shut down under them. Afterwards
// everything that was accepted has been read to its end.
class Company {
 public:
  Company(octavo::Engine& engine, const std::vector<Question>& questions, Counts& counts);
  void press(std::chrono::steady_clock::time_point end, bool shut_down);

 private:
  void ask(int number);
  void read(int number);
  void disturb();
  std::shared_ptr<Session> session(uint32_t which);
  void hang_up(uint32_t which);
  bool over() const { return std::chrono::steady_clock::now() >= end_; }

  octavo::Engine& engine_;
  const std::vector<Question>& questions_;
  Counts& counts_;
  std::chrono::steady_clock::time_point end_;
  std::mutex mutex_;  // of the sessions, which come and go
  std::vector<std::shared_ptr<Session>> sessions_;
};
