#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "backend/cuda_loader/backend_library.h"
#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "runtime/step_draws.h"

namespace octavo {

namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Row = std::tuple<SeqId, int32_t, int32_t>;                      // sequence, position, the token before it
using Scores = std::tuple<int32_t, float, int32_t>;                   // token, logprob, rank
using Drawn = std::tuple<int, int32_t, Scores, std::vector<Scores>>;  // status, token, its scores, the likeliest

Scores scores_of(const TokenLogprob& t) { return {t.token, t.logprob, t.rank}; }

std::vector<Scores> scores_of(const std::vector<TokenLogprob>& list) {
  std::vector<Scores> out;
  for (const TokenLogprob& t : list) out.push_back(scores_of(t));
  return out;
}

// Draws on a device from logits of the host.
class DeviceDraws {
 public:
  DeviceDraws(const std::string& backend, int vocab)
      : backend_(load_backend(backend, {})),
        queue_(backend_->make_queue(1)),
        states_(vocab),
        vocab_(vocab),
        rows_(*backend_, *queue_, vocab),
        draws_(*backend_, *queue_, vocab) {}

  SequenceStates& states() { return states_; }

  std::vector<Drawn> draw(Matrix logits, const std::vector<Row>& rows) {
    if (logits.shape(0) != rows.size() || logits.shape(1) != static_cast<size_t>(vocab_))
      throw Error(ErrorCode::kInvalidArgument, "logits",
                  cat("logits must be [", rows.size(), ", ", vocab_, "], one row for each draw"));
    StepPlan plan;
    plan.groups.resize(1);
    plan.groups[0].table_offsets.assign(1, 0);
    for (const auto& [seq, position, last] : rows) {
      const auto i = static_cast<int32_t>(plan.rows.size());
      PlanRow row;
      row.seq = seq;
      row.first_pos = position - 1;
      row.n_tokens = 1;
      row.token_offset = i;
      row.logits = LogitsWanted::kLast;
      plan.rows.push_back(row);
      plan.tokens.push_back(last);
      plan.groups[0].slots.push_back(-1);
      plan.groups[0].table_offsets.push_back(0);
      plan.samples.push_back({i, i, seq, position});
    }
    PlanBatch batch(1, static_cast<int>(rows.size()));
    batch.build(plan);
    const std::vector<SampledSequence*>& sampled = states_.start(plan);
    states_.finish_masks();
    draws_.prepare(plan, sampled, states_, batch, rows_);
    const size_t bytes = logits.size() * sizeof(float);
    const auto device_logits = backend_->allocate(bytes), changed = backend_->allocate(bytes);
    const auto tokens = backend_->allocate(plan.tokens.size() * sizeof(int32_t));
    backend_->upload(*queue_, device_logits->data(), logits.data(), bytes);
    backend_->upload(*queue_, tokens->data(), plan.tokens.data(), plan.tokens.size() * sizeof(int32_t));
    draws_.launch(device_logits->as<float>(), tokens->as<int32_t>(), changed->as<float>());
    queue_->wait();
    StepResult result;
    draws_.read(result);
    std::vector<Drawn> out;
    for (const SampleOutput& o : result.samples) {
      const bool beam = !o.candidates.empty();
      out.emplace_back(static_cast<int>(o.status), o.token, scores_of(o.logprobs.chosen),
                       scores_of(beam ? o.candidates : o.logprobs.top));
    }
    return out;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Queue> queue_;
  SequenceStates states_;
  int vocab_;
  DrawRows rows_;
  StepDraws draws_;
};

}  // namespace

void bind_device_draws(nb::module_& m) {
  nb::class_<DeviceDraws>(m, "DeviceDraws", "Draws on a device from given logits; for tests.")
      .def(nb::init<const std::string&, int>(), nb::arg("backend"), nb::arg("vocab"))
      .def(
          "add",
          [](DeviceDraws& self, SeqId seq, const SamplingParams& params, const std::vector<int32_t>& history,
             size_t num_output, uint32_t choice) {
            self.states().add(seq, std::make_shared<const SamplingParams>(params), history, num_output, choice);
          },
          nb::arg("seq"), nb::arg("params"), nb::arg("history"), nb::kw_only(), nb::arg("num_output") = 0,
          nb::arg("choice") = 0)
      .def(
          "accept", [](DeviceDraws& self, SeqId seq, int32_t token) { self.states().accept(seq, token); },
          nb::arg("seq"), nb::arg("token"), "The host learns the token, after the device or before it.")
      .def(
          "forget_devices", [](DeviceDraws& self) { self.states().forget_devices(); },
          "What the device holds of the sequences is sent anew.")
      .def("draw", &DeviceDraws::draw, nb::arg("logits"), nb::arg("rows"),
           "rows: (sequence, position to be drawn, the token before it). Returns (status, token, (token, logprob, "
           "rank), the likeliest) for each.");
}

}  // namespace octavo
