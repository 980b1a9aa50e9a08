#include "runtime/mask_filler.h"

#include <pthread.h>

#include <exception>

namespace octavo {

MaskFiller::~MaskFiller() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskFiller::start(const std::vector<Job>& jobs) {
  if (jobs.empty()) return;
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "octavo-masks");
      run();
    });
  }
  {
    std::lock_guard lock(mutex_);
    if (filled_.size() < jobs.size()) filled_ = std::vector<std::atomic<bool>>(2 * jobs.size());
    jobs_ = jobs;
    for (size_t i = 0; i < jobs.size(); ++i) filled_[i] = false;
    left_ = jobs.size();
    next_ = 0;
    ++round_;
  }
  changed_.notify_all();
}

void MaskFiller::wait() {
  for (size_t i = 0; i < jobs_.size(); ++i) *jobs_[i].late = !filled_[i];
  work();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return left_ == 0 && idle_; });
  jobs_.clear();
}

void MaskFiller::run() {
  size_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || (round_ != seen && left_ > 0); });
    if (stopping_) return;
    seen = round_;
    idle_ = false;
    lock.unlock();
    work();
    lock.lock();
    idle_ = true;
    changed_.notify_all();
  }
}

// Both threads claim jobs until none is left.
void MaskFiller::work() {
  size_t done = 0;
  for (size_t i = next_++; i < jobs_.size(); i = next_++, ++done) {
    const Job& job = jobs_[i];
    try {
      job.constraint->fill_mask(*job.mask);
    } catch (const std::exception& e) {
      *job.error = e.what();
    }
    filled_[i] = true;
  }
  if (done == 0) return;
  std::lock_guard lock(mutex_);
  left_ -= done;
  if (left_ == 0) changed_.notify_all();
}

}  // namespace octavo
