#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "op_inputs.h"
#include "ops/backend.h"
#include "runtime/open_backend.h"
#include "tensor_arg.h"

namespace octavo {

// A backend's ops outside an engine: for `octavo.ops` and for tests. One caller at a time. The workspace grows with
// what is asked for; an engine's is sized once. On a GPU the ops of `octavo.ops` go into the caller's stream, between
// enter() and leave(), and are not waited for.
class BackendOps {
 public:
  BackendOps(int threads, const BackendChoice& choice)
      : backend_(open_backend(choice)), queue_(backend_->make_queue(threads)), inputs_(*backend_, *queue_) {}

  Backend& backend() { return *backend_; }
  Queue& queue() { return *queue_; }
  OpInputs& inputs() { return inputs_; }

  // stream: of the caller, as Queue::enter takes it.
  void enter(uintptr_t stream) {
    queue_->enter(stream);
    stream_ = stream;
  }
  void leave() { queue_->leave(); }
  // Where tensors must lie, and what their owner is told.
  TensorPlace place() const {
    if (backend_->host_memory()) return {};
    return {TensorPlace::kGpu, backend_->caps().ordinal, stream_};
  }
  // Error(kInvalidArgument, "packed", ...) unless the ops can multiply with the weight.
  void check_weight(const PackedWeight& weight) const;
  // The op's results are there.
  void wait() { queue_->wait(); }

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
  OpInputs inputs_;
  WorkspaceLimits limits_;
  uintptr_t stream_ = 0;
};

}  // namespace octavo
