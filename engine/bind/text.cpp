#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>

#include "base/errors.h"
#include "base/format.h"
#include "base/utf8.h"
#include "bind.h"
#include "text/detokenizer.h"
#include "text/text_stream.h"

namespace octavo {

namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void make_table(TokenTable* self, nb::bytes bytes, Array<uint32_t> offsets, Array<uint8_t> special, bool strip) {
  if (offsets.shape(0) != special.shape(0) + 1) {
    throw Error(
        ErrorCode::kInvalidArgument, "offsets",
        cat("offsets must have one entry more than special: ", special.shape(0) + 1, ", got ", offsets.shape(0)));
  }
  const uint32_t* ends = offsets.data();
  const bool ordered = std::is_sorted(ends, ends + offsets.shape(0));
  if (!ordered || ends[0] != 0 || ends[special.shape(0)] != bytes.size()) {
    throw Error(ErrorCode::kInvalidArgument, "offsets",
                cat("offsets must ascend from 0 to the number of bytes, ", bytes.size()));
  }
  new (self) TokenTable{std::string(bytes.c_str(), bytes.size()),
                        {ends, ends + offsets.shape(0)},
                        {special.data(), special.data() + special.shape(0)},
                        strip};
}

std::string text_of(const TokenTable& table, const std::vector<int32_t>& ids, bool skip_special, bool at_text_start) {
  Detokenizer detokenizer(table, skip_special, at_text_start);
  std::string text;
  for (const int32_t id : ids) detokenizer.push(id, text);
  detokenizer.flush(text);
  return text;
}

// A TextStream that answers as Python likes it: (text, tokens released, index of the stop string or None).
class PyTextStream {
 public:
  using Answer = std::tuple<std::string, int32_t, std::optional<int32_t>>;

  PyTextStream(const TokenTable* table, const std::vector<std::string>& stop, TextOptions options)
      : stream_(table, std::make_shared<const StopStrings>(checked(stop)), options) {}

  Answer push(int32_t token) {
    return answer([&](std::string& text) { return stream_.push(token, text); });
  }
  Answer finish() {
    return answer([&](std::string& text) { return stream_.finish(text); });
  }
  Answer finish_at_stop_token(int32_t token) {
    return answer([&](std::string& text) { return stream_.finish_at_stop_token(token, text); });
  }
  int32_t held_tokens() const { return stream_.held_tokens(); }

 private:
  static const std::vector<std::string>& checked(const std::vector<std::string>& stop) {
    for (const std::string& s : stop) {
      if (s.empty() || !is_valid_utf8(s)) {
        throw Error(ErrorCode::kInvalidArgument, "stop", "every stop string must be non-empty, valid UTF-8");
      }
    }
    return stop;
  }

  template <class Step>
  static Answer answer(Step step) {
    std::string text;
    const Released released = step(text);
    return {std::move(text), released.tokens, released.stop < 0 ? std::nullopt : std::optional(released.stop)};
  }

  TextStream stream_;
};

}  // namespace

void bind_text(nb::module_& m) {
  nb::class_<TokenTable>(m, "TokenTable", "The bytes of every token id: what text is made of.")
      .def("__init__", &make_table, nb::arg("bytes"), nb::arg("offsets"), nb::arg("special"),
           nb::arg("strip_leading_space"),
           "bytes: all tokens' bytes, one after the other; offsets: uint32 [vocab + 1]; special: uint8 [vocab], 1 "
           "where\n"
           "skip_special_tokens skips; strip_leading_space: one leading space of the text is dropped (SentencePiece).")
      .def_prop_ro("vocab", &TokenTable::vocab)
      .def(
          "token",
          [](const TokenTable& t, int32_t id) {
            if (id < 0 || id >= t.vocab()) {
              throw Error(ErrorCode::kInvalidArgument, "id", cat("id must be in [0, ", t.vocab(), "), got ", id));
            }
            const std::string_view bytes = t.token(id);
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("id"), "The bytes that a token stands for.")
      .def("decode", &text_of, nb::arg("ids"), nb::arg("skip_special_tokens") = true, nb::arg("at_text_start") = true,
           nb::call_guard<nb::gil_scoped_release>(),
           "The text of ids. Invalid UTF-8 becomes U+FFFD, one per maximal subpart; at_text_start=False keeps the\n"
           "leading space of ids that continue a text.");

  nb::class_<PyTextStream>(m, "TextStream", "The output text of one choice, token by token, up to a stop string.")
      .def(
          "__init__",
          [](PyTextStream* self, const TokenTable* table, const std::vector<std::string>& stop, bool include_stop,
             bool skip_special, int32_t min_tokens, bool at_text_start,
             const std::vector<std::pair<std::string, std::string>>& stop_pauses, bool stop_paused) {
            auto pauses = stop_pauses.empty() ? nullptr : std::make_shared<const StopPauses>(stop_pauses);
            new (self) PyTextStream(
                table, stop, {skip_special, include_stop, at_text_start, min_tokens, std::move(pauses), stop_paused});
          },
          nb::arg("table").none(), nb::arg("stop") = std::vector<std::string>(), nb::kw_only(),
          nb::arg("include_stop_str_in_output") = false, nb::arg("skip_special_tokens") = true,
          nb::arg("min_tokens") = 0, nb::arg("at_text_start") = false,
          nb::arg("stop_pauses") = std::vector<std::pair<std::string, std::string>>(), nb::arg("stop_paused") = false,
          nb::keep_alive<1, 2>())
      .def("push", &PyTextStream::push, nb::arg("token"),
           "(text released, number of tokens released, index of the stop string found or None).")
      .def("finish", &PyTextStream::finish, "The end by length: releases all that was held.")
      .def("finish_at_stop_token", &PyTextStream::finish_at_stop_token, nb::arg("token"),
           "The end by a stop token: its text is released only with include_stop_str_in_output.")
      .def_prop_ro("held_tokens", &PyTextStream::held_tokens)
      .def(
          "fork", [](const PyTextStream& s) { return PyTextStream(s); }, nb::keep_alive<0, 1>(),
          "A copy that continues on its own.");
}

}  // namespace octavo
