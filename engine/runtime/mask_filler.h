#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sample/constraint.h"

namespace octavo {

// Fills the masks of constrained sequences on a thread of its own while the forward pass runs. Owned by one thread.
class MaskFiller {
 public:
  struct Job {
    Constraint* constraint;
    std::vector<uint32_t>* mask;  // [(vocab + 31) / 32]
    std::string* error;           // why it could not be filled
    bool* late;                   // whether wait() found it unfilled
  };
  MaskFiller() = default;
  ~MaskFiller();

  // The jobs are distinct and stay where they are until wait(), which is to follow. The thread starts with the first.
  // Where this throws nothing is started.
  void start(const std::vector<Job>& jobs);
  // Returns when every mask is filled; does what the thread has not come to. Job::late says of each whether it was
  // filled by now.
  void wait();

 private:
  void run();
  void work();

  std::vector<Job> jobs_;
  std::vector<std::atomic<bool>> filled_;  // [jobs or more]
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t round_ = 0;
  size_t left_ = 0;   // jobs that are not done
  bool idle_ = true;  // the thread looks at no job
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace octavo
