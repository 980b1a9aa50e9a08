#include "runtime/channel.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/format.h"
#include "bind.h"

namespace octavo {

namespace {

nb::object finish_name(Finish f) {
  switch (f) {
    case Finish::kStop:
      return nb::str("stop");
    case Finish::kLength:
      return nb::str("length");
    case Finish::kAbort:
      return nb::str("abort");
    case Finish::kError:
      return nb::str("error");
    case Finish::kNone:
      break;
  }
  return nb::none();
}

Finish finish_named(const std::string& name) {
  if (name == "stop") return Finish::kStop;
  if (name == "length") return Finish::kLength;
  if (name == "abort") return Finish::kAbort;
  throw Error(ErrorCode::kInvalidArgument, "finish", cat("finish must be stop, length or abort, got '", name, "'"));
}

nb::object stop_reason(const Delta& d) {
  if (const auto* id = std::get_if<int32_t>(&d.stop_reason)) return nb::int_(*id);
  if (const auto* text = std::get_if<std::string>(&d.stop_reason)) return nb::str(text->c_str(), text->size());
  return nb::none();
}

nb::tuple logprob_tuple(const PositionLogprobs& p) {
  nb::list top;
  for (const TokenLogprob& t : p.top) top.append(nb::make_tuple(t.token, t.logprob, t.rank));
  return nb::make_tuple(p.chosen.token, p.chosen.logprob, p.chosen.rank, top);
}

nb::object logprobs(const Delta& d) {
  if (!d.has_logprobs) return nb::none();
  nb::list out;
  for (const PositionLogprobs& p : d.logprobs) out.append(logprob_tuple(p));
  return out;
}

nb::object prompt_logprobs(const Delta& d) {
  if (!d.has_prompt_logprobs) return nb::none();
  nb::list out;
  out.append(nb::none());  // nothing predicts the first token
  for (const PositionLogprobs& p : d.prompt_logprobs) out.append(logprob_tuple(p));
  return out;
}

nb::object optional_float(const std::optional<double>& value) {
  return value ? nb::object(nb::float_(*value)) : nb::object(nb::none());
}

nb::object error(const Delta& d) {
  if (!d.error) return nb::none();
  return nb::make_tuple(error_code_name(d.error->code), d.error->param, d.error->message);
}

}  // namespace

void bind_channel(nb::module_& m) {
  nb::class_<Delta>(m, "Delta", "What one choice of a request released in one step.")
      .def(
          "__init__",
          [](Delta* self, RequestId id, std::string text, std::vector<int32_t> token_ids,
             const std::optional<std::string>& finish, int32_t prompt_tokens) {
            new (self) Delta{};
            self->id = id;
            self->text = std::move(text);
            self->token_ids = std::move(token_ids);
            self->prompt_tokens = prompt_tokens;
            if (finish) self->finish = finish_named(*finish);
          },
          nb::arg("id"), nb::kw_only(), nb::arg("text") = "", nb::arg("token_ids") = std::vector<int32_t>{},
          nb::arg("finish") = nb::none(), nb::arg("prompt_tokens") = 0,
          "For studies of what reads deltas; the engine makes its own.")
      .def_ro("id", &Delta::id)
      .def_ro("choice", &Delta::choice)
      .def_ro("token_ids", &Delta::token_ids)
      .def_prop_ro("text", [](const Delta& d) { return nb::str(d.text.c_str(), d.text.size()); })
      .def_prop_ro("logprobs", &logprobs,
                   nb::for_getter(nb::sig(
                       "def logprobs(self, /) -> list[tuple[int, float, int, list[tuple[int, float, int]]]] | None")),
                   "Per token (token, logprob, rank, [(token, logprob, rank), ...]), or None when not asked for.")
      .def_prop_ro("prompt_logprobs", &prompt_logprobs,
                   nb::for_getter(nb::sig("def prompt_logprobs(self, /) -> list[tuple[int, float, int, list[tuple[int, "
                                          "float, int]]] | None] | None")),
                   "Once per request; None at position 0.")
      .def_prop_ro(
          "finish", [](const Delta& d) { return finish_name(d.finish); },
          nb::for_getter(nb::sig("def finish(self, /) -> str | None")))
      .def_prop_ro("stop_reason", &stop_reason, nb::for_getter(nb::sig("def stop_reason(self, /) -> int | str | None")),
                   "The stop token id or stop string; None for the model's end token.")
      .def_ro("prompt_tokens", &Delta::prompt_tokens)
      .def_ro("cached_tokens", &Delta::cached_tokens, "Prompt tokens that came from the prefix cache.")
      .def_prop_ro("arrival", [](const Delta& d) { return d.times.arrival; })
      .def_prop_ro("scheduled", [](const Delta& d) { return d.times.scheduled; })
      .def_prop_ro("first_token", [](const Delta& d) { return d.times.first_token; })
      .def_prop_ro("last_token", [](const Delta& d) { return d.times.last_token; })
      .def_prop_ro(
          "cumulative_logprob", [](const Delta& d) { return optional_float(d.cumulative_logprob); },
          nb::for_getter(nb::sig("def cumulative_logprob(self, /) -> float | None")),
          "With the finish, where sequences were ranked by it (best_of, beams).")
      .def_prop_ro(
          "score", [](const Delta& d) { return optional_float(d.score); },
          nb::for_getter(nb::sig("def score(self, /) -> float | None")), "With the finish of a beam search.")
      .def_prop_ro("error", &error, nb::for_getter(nb::sig("def error(self, /) -> tuple[str, str, str] | None")),
                   "(code, param, message) with finish 'error'.")
      .def_ro("sent", &Delta::sent, "Its text is on its way to the reader already; see Channel.send_directly.")
      .def_prop_ro(
          "rest", [](const Delta& d) { return nb::bytes(d.rest.data(), d.rest.size()); },
          "Where `sent`: bytes that must reach the socket before anything else does, mostly none.");

  nb::class_<Channel>(m, "Channel", "Deltas of one consumer's requests. `fd` is readable while deltas wait.")
      .def_prop_ro("fd", &Channel::fd)
      .def("drain", &Channel::drain, "All deltas published so far, in order.")
      .def(
          "send_directly",
          [](Channel& self, RequestId request, int fd, const nb::bytes& head, const nb::bytes& tail) {
            return self.send_directly(request, fd, {head.c_str(), head.size()}, {tail.c_str(), tail.size()});
          },
          nb::arg("request"), nb::arg("fd"), nb::arg("head"), nb::arg("tail"),
          "From now on the engine itself writes the text of a request of one choice to the socket `fd`: per delta one "
          "chunk of HTTP/1.1 of head, the text as a JSON string without quotes, and tail. Such deltas are `sent`, and "
          "come some 0.25 s later. It ends with the request's finish, and where the socket does not take all at once. "
          "False: deltas of the request wait to be drained, or no descriptor is left.")
      .def("take_back", &Channel::take_back, nb::arg("request"),
           "Ends send_directly. time.monotonic() of the last text, or None where it had ended already.")
      .def("wait", &Channel::wait, nb::arg("timeout_ms"), nb::call_guard<nb::gil_scoped_release>(),
           "Waits until deltas are there; False after timeout_ms milliseconds.");
}

}  // namespace octavo
