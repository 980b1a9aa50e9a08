#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "hash_executor.h"
#include "runtime/step_loop.h"

namespace octavo {

namespace {

// The engine's loop over a HashExecutor, on the caller's thread.
class HashEngine {
 public:
  HashEngine(const HashModel& model, const TokenTable& table, std::vector<int32_t> eos)
      : executor_(model),
        table_(table),
        channel_(std::make_shared<Channel>()),
        loop_(model.sched, executor_, table_, std::move(eos)) {}

  RequestId submit(std::vector<int32_t> prompt, const SamplingParams& params, uint64_t ns, int32_t priority,
                   uint64_t tenant) {
    SubmitRequest request;
    request.prompt = std::move(prompt);
    request.params = std::make_shared<const SamplingParams>(params);
    request.channel = channel_;
    request.prefix_namespace = ns;
    request.priority = priority;
    request.tenant = tenant;
    loop_.add(next_id_, request, 0);
    return next_id_++;
  }

  RequestId fork(RequestId parent, const SamplingParams& params, std::optional<int32_t> position) {
    loop_.fork(next_id_, {parent, 0, position, std::make_shared<const SamplingParams>(params), channel_}, 0);
    return next_id_++;
  }

  std::vector<Delta> step() {
    loop_.step();
    return deltas();
  }

  std::vector<Delta> drain() {
    loop_.drain();
    return deltas();
  }

  StepLoop& loop() { return loop_; }
  HashExecutor& executor() { return executor_; }

 private:
  std::vector<Delta> deltas() {
    loop_.publish();
    return channel_->drain();
  }

  HashExecutor executor_;
  TokenTable table_;
  std::shared_ptr<Channel> channel_;
  StepLoop loop_;
  RequestId next_id_ = 1;
};

}  // namespace

void bind_hash_engine(nb::module_& m) {
  nb::class_<HashEngine>(m, "HashEngine",
                         "The engine's loop on the caller's thread, with hashes instead of a model; for tests.")
      .def(
          "__init__",
          [](HashEngine* self, const std::vector<std::tuple<int, int>>& groups, const TokenTable& table,
             std::vector<int32_t> eos, int slots, int block_size, int max_tokens_per_step, int max_seqs,
             int max_model_len, bool prefix_caching, int32_t poison, int non_finite_in) {
            HashModel model;
            model.sched.groups.clear();
            for (const auto& [blocks, window] : groups)
              model.sched.groups.push_back({blocks, window > 0 ? RetainBlocks::kWindow : RetainBlocks::kAll, window});
            model.sched.block_size = block_size;
            model.sched.max_tokens_per_step = max_tokens_per_step;
            model.sched.max_seqs = max_seqs;
            model.sched.max_model_len = max_model_len;
            model.sched.prefix_caching = prefix_caching;
            model.slots = slots;
            model.vocab = table.vocab();
            model.poison = poison;
            model.non_finite_in = non_finite_in;
            new (self) HashEngine(model, table, std::move(eos));
          },
          nb::kw_only(), nb::arg("groups"), nb::arg("table"), nb::arg("eos"), nb::arg("slots"), nb::arg("block_size"),
          nb::arg("max_tokens_per_step"), nb::arg("max_seqs"), nb::arg("max_model_len"),
          nb::arg("prefix_caching") = true, nb::arg("poison") = -1, nb::arg("non_finite_in") = 0,
          "groups: (num_blocks, window). slots: steps under way at once. poison: a token that makes a step throw.")
      .def("submit", &HashEngine::submit, nb::arg("prompt"), nb::arg("params"), nb::kw_only(), nb::arg("namespace") = 0,
           nb::arg("priority") = 0, nb::arg("tenant") = 0)
      .def("fork", &HashEngine::fork, nb::arg("request"), nb::arg("params"), nb::kw_only(), nb::arg("position"))
      .def(
          "cancel", [](HashEngine& self, RequestId id) { self.loop().cancel(id); }, nb::arg("id"))
      .def("step", &HashEngine::step, "One step of the loop; what it released.")
      .def("drain", &HashEngine::drain, "Commits the steps under way; what they released.")
      .def("has_work", [](HashEngine& self) { return self.loop().has_work(); })
      .def(
          "fail_submit", [](HashEngine& self, int n) { self.executor().fail_submit(n); }, nb::arg("n"),
          "The n-th submit from now throws.")
      .def(
          "fail_wait", [](HashEngine& self, int n) { self.executor().fail_wait(n); }, nb::arg("n"),
          "The n-th wait from now throws, after all of its effects.")
      .def("live_blocks", [](HashEngine& self) { return self.loop().stats().sched.live_blocks; })
      .def(
          "counts",
          [](HashEngine& self) {
            const LoopStats s = self.loop().stats();
            return std::tuple{s.steps, s.failed_steps, s.sched.preemptions, s.sched.prefix_hits};
          },
          "(steps, failed steps, preemptions, prompt tokens found in the cache).")
      .def("audit", [](HashEngine& self) { self.loop().audit(); });
}

}  // namespace octavo
