#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "runtime/open_backend.h"

namespace octavo {

// A backend's ops outside an engine: for `octavo.ops` and for tests. One caller at a time. The workspace grows with
// what is asked for; an engine's is sized once.
class BackendOps {
 public:
  BackendOps(int threads, const BackendChoice& choice)
      : backend_(open_backend(choice)), queue_(backend_->make_queue(threads)) {}

  Backend& backend() { return *backend_; }
  Queue& queue() { return *queue_; }

  // Where the op reads what the host has made for it; until wait().
  template <class T>
  const T* on_device(const std::vector<T>& host) {
    if (backend_->host_memory() || host.empty()) return host.data();
    moved_.push_back(backend_->allocate(host.size() * sizeof(T)));
    backend_->upload(*queue_, moved_.back()->data(), host.data(), moved_.back()->size());
    return moved_.back()->template as<T>();
  }
  // The op's results are there.
  void wait() {
    queue_->wait();
    moved_.clear();
  }

  void reserve(const WorkspaceLimits& needed) {
    auto grow = [](int& have, int need) { have = std::max(have, need); };
    grow(limits_.max_tokens, needed.max_tokens);
    grow(limits_.max_k, needed.max_k);
    grow(limits_.max_n, needed.max_n);
    grow(limits_.max_heads, needed.max_heads);
    grow(limits_.max_head_dim, needed.max_head_dim);
    grow(limits_.max_positions, needed.max_positions);
    grow(limits_.max_expert_rows, needed.max_expert_rows);
    queue_->reserve(limits_);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Queue> queue_;
  WorkspaceLimits limits_;
  std::vector<std::unique_ptr<DeviceMemory>> moved_;
};

}  // namespace octavo
