#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "sample/check_params.h"
#include "sample/philox.h"
#include "sample/row_kernels.h"
#include "sample/sampler.h"
#include "sample/stages.h"

namespace octavo {

namespace {

using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableRow = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scored = std::tuple<int32_t, float, int32_t>;  // token, logprob, rank

nb::object refusal(const Refusal& r) {
  return nb::module_::import_("octavo.errors")
      .attr("refusal")(error_code_name(r.code), r.param, r.message, r.value, r.limit);
}

void require_valid(const SamplingParams& params, int vocab) {
  if (const std::optional<Refusal> bad = check_params(params, vocab)) throw Error(bad->code, bad->param, bad->message);
}

void require_token(const char* name, int32_t token, size_t vocab) {
  if (token < 0 || token >= static_cast<int64_t>(vocab)) {
    throw Error(ErrorCode::kInvalidArgument, name, cat(name, " must be in [0, ", vocab, "), got ", token));
  }
}

void require_row(const Row& row) {
  if (row.shape(0) == 0) throw Error(ErrorCode::kInvalidArgument, "logits", "logits must not be empty");
}

void require_ok(SampleStatus status) {
  if (status == SampleStatus::kNonFinite) {
    throw Error(ErrorCode::kInternal, "logits", "the model gave logits that are not finite (NaN or infinity)");
  }
  if (status == SampleStatus::kAllMasked) {
    throw Error(ErrorCode::kInvalidArgument, "allowed_token_ids",
                "no token is left: allowed_token_ids, bad_words, min_tokens and the constraint exclude all");
  }
}

Scored scored(const TokenLogprob& t) { return {t.token, t.logprob, t.rank}; }

std::vector<Scored> scored(const std::vector<TokenLogprob>& list) {
  std::vector<Scored> out;
  out.reserve(list.size());
  for (const TokenLogprob& t : list) out.push_back(scored(t));
  return out;
}

// The arguments of a call, checked, with working memory for it.
class RowCall {
 public:
  RowCall(const Row& logits, const SamplingParams& params, const SamplerState& state, int32_t position, uint32_t choice,
          const std::optional<Mask>& mask)
      : scratch(static_cast<int>(logits.shape(0))) {
    require_row(logits);
    const int vocab = scratch.vocab();
    require_valid(params, vocab);
    for (const TokenCount& count : state.counts()) require_token("state", count.token, vocab);
    if (mask && mask->shape(0) != static_cast<size_t>(vocab + 31) / 32) {
      throw Error(ErrorCode::kInvalidArgument, "mask",
                  cat("mask must have ", (vocab + 31) / 32, " words, got ", mask->shape(0)));
    }
    in = {logits.data(), vocab, &params, &state, mask ? mask->data() : nullptr, choice, position};
  }
  SampleInput in;
  SampleScratch scratch;
};

int32_t sample_row(Row logits, const SamplingParams& params, const SamplerState& state, int32_t position,
                   uint32_t choice, std::optional<Mask> mask) {
  RowCall call(logits, params, state, position, choice, mask);
  const SampleResult result = sample(call.in, call.scratch);
  require_ok(result.status);
  return result.token;
}

std::vector<std::pair<int32_t, uint32_t>> distribution_of_row(Row logits, const SamplingParams& params,
                                                              const SamplerState& state, std::optional<Mask> mask) {
  RowCall call(logits, params, state, 0, 0, mask);
  std::vector<TokenWeight> weights;
  require_ok(distribution(call.in, call.scratch, weights));
  std::vector<std::pair<int32_t, uint32_t>> out;
  for (const TokenWeight& w : weights) out.emplace_back(w.token, w.weight);
  return out;
}

// Draws at positions 0, 1, ... from one row: what statistics need, without a call for each draw.
std::vector<int32_t> sample_many(Row logits, const SamplingParams& params, int count) {
  require_row(logits);
  const int vocab = static_cast<int>(logits.shape(0));
  require_valid(params, vocab);
  nb::gil_scoped_release release;
  const SamplerState state;
  SampleScratch scratch(vocab);
  std::vector<int32_t> out;
  for (int i = 0; i < count; ++i) {
    const SampleResult result = sample({logits.data(), vocab, &params, &state, nullptr, 0, i}, scratch);
    require_ok(result.status);
    out.push_back(result.token);
  }
  return out;
}

std::pair<Scored, std::vector<Scored>> score_row(Row logits, int32_t token, int top) {
  require_row(logits);
  require_token("token", token, logits.shape(0));
  const int vocab = static_cast<int>(logits.shape(0));
  SampleScratch scratch(vocab);
  PositionLogprobs out;
  require_ok(score_token(logits.data(), vocab, token, top, scratch, out));
  return {scored(out.chosen), scored(out.top)};
}

std::vector<Scored> best_of_row(Row logits, int count) {
  require_row(logits);
  const int vocab = static_cast<int>(logits.shape(0));
  SampleScratch scratch(vocab);
  std::vector<TokenLogprob> out;
  require_ok(best_tokens(logits.data(), vocab, count, scratch, out));
  return scored(out);
}

std::span<float> span_of(MutableRow& row) { return {row.data(), row.shape(0)}; }

// Every stage alone: logits [vocab], changed in place.
void bind_stages(nb::module_& m) {
  const auto checked = [](MutableRow& row, const SamplingParams& params) {
    require_valid(params, static_cast<int>(row.shape(0)));
    return span_of(row);
  };
  m.def(
      "apply_logit_bias", [=](MutableRow row, const SamplingParams& p) { apply_logit_bias(checked(row, p), p); },
      nb::arg("logits"), nb::arg("params"), "Adds logit_bias to logits [vocab], in place.");
  m.def(
      "apply_penalties",
      [=](MutableRow row, const SamplingParams& p, const SamplerState& state) {
        for (const TokenCount& count : state.counts()) require_token("state", count.token, row.shape(0));
        apply_penalties(checked(row, p), p, state);
      },
      nb::arg("logits"), nb::arg("params"), nb::arg("state"),
      "Applies the repetition penalty (prompt and output), then frequency and presence (output), in place.");
  m.def(
      "apply_bad_words",
      [=](MutableRow row, const SamplingParams& p, const SamplerState& state) {
        apply_bad_words(checked(row, p), p, state.output());
      },
      nb::arg("logits"), nb::arg("params"), nb::arg("state"),
      "Masks the last token of every bad word that the output is about to complete, in place.");
  m.def(
      "apply_allowed_tokens",
      [=](MutableRow row, const SamplingParams& p) {
        std::vector<float> kept(p.allowed_token_ids.size());
        apply_allowed_tokens(checked(row, p), p, kept);
      },
      nb::arg("logits"), nb::arg("params"), "Masks what allowed_token_ids does not name, in place.");
  m.def(
      "apply_min_tokens",
      [=](MutableRow row, const SamplingParams& p, int32_t output_length) {
        apply_min_tokens(checked(row, p), p, output_length);
      },
      nb::arg("logits"), nb::arg("params"), nb::arg("output_length"),
      "Masks the stop tokens while the output is shorter than min_tokens, in place.");
}

// The passes over a row for each instruction set that this machine runs.
void bind_row_kernels(nb::module_& m) {
  nb::class_<RowKernels>(m, "RowKernels", "The passes over a row of logits, of one instruction set.")
      .def_ro("isa", &RowKernels::isa)
      .def("scan",
           [](const RowKernels& k, Row x) {
             std::vector<float> block_max(num_scan_blocks(static_cast<int>(x.shape(0))));
             const RowScan scan = k.scan(x.data(), static_cast<int>(x.shape(0)), block_max.data());
             return std::make_tuple(scan.max, scan.finite);
           })
      .def("sum_exp",
           [](const RowKernels& k, Row x, float max) { return k.sum_exp(x.data(), static_cast<int>(x.shape(0)), max); })
      .def("weigh",
           [](const RowKernels& k, Row x, float max, float scale) {
             std::vector<uint32_t> weights(x.shape(0));
             const uint64_t total =
                 k.weigh(x.data(), static_cast<int>(x.shape(0)), max, scale, weights.data(), nullptr);
             return std::make_tuple(total, weights);
           })
      .def("count_greater", [](const RowKernels& k, Row x, float value) {
        return k.count_greater(x.data(), static_cast<int>(x.shape(0)), value);
      });
  m.def("row_kernels", &row_kernels, nb::rv_policy::reference, "The best for this machine.");
  m.def("baseline_row_kernels", &baseline_row_kernels, nb::rv_policy::reference);
}

}  // namespace

void bind_sample(nb::module_& m) {
  nb::enum_<EarlyStopping>(m, "EarlyStopping", "When a beam search with enough finished hypotheses ends.")
      .value("NO", EarlyStopping::kNo)
      .value("YES", EarlyStopping::kYes)
      .value("NEVER", EarlyStopping::kNever);
#define FIELD(name) .def_rw(#name, &SamplingParams::name)
  nb::class_<SamplingParams>(m, "SamplingParams", "How one request's tokens are chosen, as the engine sees it.")
      .def(nb::init<>()) FIELD(temperature) FIELD(top_p) FIELD(top_k) FIELD(min_p) FIELD(repetition_penalty)
          FIELD(presence_penalty) FIELD(frequency_penalty) FIELD(seed) FIELD(max_tokens) FIELD(min_tokens)
              FIELD(logprobs) FIELD(prompt_logprobs) FIELD(logit_bias) FIELD(allowed_token_ids) FIELD(bad_words)
                  FIELD(stop_token_ids) FIELD(stop) FIELD(stop_pauses) FIELD(stop_paused)
                      FIELD(include_stop_str_in_output) FIELD(skip_special_tokens) FIELD(detokenize) FIELD(n)
                          FIELD(best_of) FIELD(beam_width) FIELD(length_penalty) FIELD(early_stopping)
      .def_prop_rw(
          "grammar", [](const SamplingParams& p) { return std::const_pointer_cast<Grammar>(p.grammar); },
          [](SamplingParams& p, std::shared_ptr<Grammar> grammar) { p.grammar = std::move(grammar); },
          nb::arg("grammar").none());
#undef FIELD

  m.def(
      "check_params",
      [](const SamplingParams& params, int vocab) -> nb::object {
        const std::optional<Refusal> bad = check_params(params, vocab);
        return bad ? refusal(*bad) : nb::none();
      },
      nb::arg("params"), nb::arg("vocab"),
      "A RefusedError (not raised) that names the parameter, its value and the limit, or None.");

  nb::module_ s = m.def_submodule("sampling", "The sampler on single rows of logits.");
  nb::class_<SamplerState>(s, "SamplerState", "What a sequence's next token depends on besides its logits.")
      .def(
          "__init__",
          [](SamplerState* self, const SamplingParams& params, const std::vector<int32_t>& prompt) {
            new (self) SamplerState(params, prompt);
          },
          nb::arg("params") = SamplingParams(), nb::arg("prompt") = std::vector<int32_t>())
      .def("append", &SamplerState::append, nb::arg("token"))
      .def("rollback", &SamplerState::rollback, nb::arg("tokens"))
      .def(
          "fork", [](const SamplerState& state) { return SamplerState(state); }, "A copy that continues on its own.")
      .def_prop_ro("output", [](const SamplerState& state) {
        return std::vector<int32_t>(state.output().begin(), state.output().end());
      });

  s.def("sample", &sample_row, nb::arg("logits"), nb::arg("params"), nb::arg("state") = SamplerState(),
        nb::arg("position") = 0, nb::arg("choice") = 0, nb::arg("mask") = nb::none(),
        "The next token from raw logits [vocab]. mask: uint32 [(vocab + 31) / 32], a set bit allows the token.");
  s.def("distribution", &distribution_of_row, nb::arg("logits"), nb::arg("params"), nb::arg("state") = SamplerState(),
        nb::arg("mask") = nb::none(),
        "What sample() draws from: (token, weight) by ascending id, 2**30 for the most likely.");
  s.def("sample_many", &sample_many, nb::arg("logits"), nb::arg("params"), nb::arg("count"),
        "Draws at positions 0 to count - 1 from one row, without history.");
  s.def("score", &score_row, nb::arg("logits"), nb::arg("token"), nb::arg("top") = 0,
        "((token, logprob, rank), the top best) from raw logits.");
  s.def("best_tokens", &best_of_row, nb::arg("logits"), nb::arg("count"), "The count best (token, logprob, rank).");
  s.def("philox4x32", &philox4x32, nb::arg("counter"), nb::arg("key"), "Philox4x32-10: four random words.");
  bind_stages(s);
  bind_row_kernels(s);
}

}  // namespace octavo
