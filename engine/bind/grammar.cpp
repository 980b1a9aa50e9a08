#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>

#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "grammar/grammar_vocabulary.h"
#include "grammar/llguidance_grammar.h"
#include "grammar/marked_grammar.h"
#include "python_grammar.h"

namespace octavo {

namespace {

using Kinds = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// What Python holds of a vocabulary: grammars share the vocabulary itself, so that the thread that lets the last of
// them go needs no interpreter.
struct VocabularyHandle {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
};

std::vector<TokenKind> token_kinds(const Kinds& given, const TokenTable& table) {
  if (given.shape(0) > static_cast<size_t>(table.vocab()))
    throw Error(ErrorCode::kInvalidArgument, "kinds",
                cat("kinds must have at most one entry per token, ", table.vocab(), ", got ", given.shape(0)));
  std::vector<TokenKind> kinds(given.shape(0));
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (given.data()[i] > static_cast<uint8_t>(TokenKind::kByte))
      throw Error(ErrorCode::kInvalidArgument, "kinds", cat("kinds are 0 to 3, got ", int{given.data()[i]}));
    kinds[i] = static_cast<TokenKind>(given.data()[i]);
  }
  return kinds;
}

void make_vocabulary(VocabularyHandle* self, const std::string& library, const TokenTable& table, Kinds kinds,
                     const std::vector<int32_t>& end_tokens, std::optional<WordSplit> forced) {
  const std::vector<TokenKind> checked = token_kinds(kinds, table);
  for (const int32_t id : end_tokens) {
    if (id < 0 || id >= static_cast<int64_t>(checked.size()))
      throw Error(ErrorCode::kInvalidArgument, "end_tokens",
                  cat("end_tokens must be below ", checked.size(), ", got ", id));
  }
  nb::gil_scoped_release release;
  new (self) VocabularyHandle{std::make_shared<const GrammarVocabulary>(
      std::make_shared<const LlguidanceLibrary>(library), std::make_shared<const TokenTable>(table), checked,
      end_tokens, forced)};
}

std::vector<uint32_t> tokenize(const VocabularyHandle& self, nb::bytes text) {
  const GrammarVocabulary& v = *self.vocabulary;
  const auto* bytes = static_cast<const uint8_t*>(text.data());
  std::vector<uint32_t> ids(text.size());
  ids.resize(v.library().tokenize_bytes(v.handle(), bytes, text.size(), ids.data(), ids.size()));
  return ids;
}

std::shared_ptr<Grammar> compile(const VocabularyHandle& self, const std::string& kind, const std::string& text,
                                 size_t max_grammar_size, uint64_t compile_fuel) {
  GrammarLimits limits;
  limits.max_grammar_size = max_grammar_size;
  limits.compile_fuel = compile_fuel;
  nb::gil_scoped_release release;
  return std::make_shared<LlguidanceGrammar>(self.vocabulary, kind, text, limits);
}

std::shared_ptr<Grammar> after_marker(std::shared_ptr<Grammar> grammar, nb::bytes marker, const TokenTable& table,
                                      const std::vector<int32_t>& end_tokens) {
  const std::string text(marker.c_str(), marker.size());
  nb::gil_scoped_release release;
  return std::make_shared<MarkedGrammar>(std::move(grammar), text, std::make_shared<const TokenTable>(table),
                                         end_tokens);
}

nb::object mask_of(Constraint& constraint, int vocab) {
  const size_t words = static_cast<size_t>(vocab + 31) / 32;
  auto* bits = new uint32_t[words]();
  nb::capsule owner(bits, [](void* p) noexcept { delete[] static_cast<uint32_t*>(p); });
  {
    nb::gil_scoped_release release;
    constraint.fill_mask({bits, words});
  }
  return nb::cast(nb::ndarray<nb::numpy, uint32_t, nb::ndim<1>>(bits, {words}, owner));
}

std::vector<int32_t> forced(Constraint& constraint) {
  std::vector<int32_t> tokens;
  constraint.list_forced(tokens);
  return tokens;
}

}  // namespace

void bind_grammar(nb::module_& m) {
  const auto release = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Grammar>(m, "Grammar", "What an output must look like, compiled for one model.")
      .def_prop_ro("vocab", &Grammar::vocab)
      .def("start", [](const Grammar& g) { return g.start(); }, release, "A constraint at the beginning of a text.");

  nb::class_<Constraint>(m, "Constraint", "Where one text stands in its grammar.")
      .def("fork", &Constraint::fork, release)
      .def("fill_mask", &mask_of, nb::arg("vocab"), nb::sig("def fill_mask(self, vocab: int) -> typing.Any"),
           "uint32 [(vocab + 31) / 32]: which tokens may come next.")
      .def("accept", &Constraint::accept, nb::arg("token"), release)
      .def("rollback", &Constraint::rollback, nb::arg("tokens"), release)
      .def("forced", &forced, release, "The tokens that follow next whatever is drawn.")
      .def_prop_ro("done", &Constraint::done);

  nb::enum_<WordSplit>(m, "WordSplit", "Where forced text is split before its pieces are merged.")
      .value("BLANK_JOINS_WORD", WordSplit::kBlankJoinsWord)
      .value("BLANKS_JOIN_WORD", WordSplit::kBlanksJoinWord);

  nb::class_<VocabularyHandle>(m, "GrammarVocabulary", "A model's tokens as grammars see them.")
      .def("__init__", &make_vocabulary, nb::arg("library"), nb::arg("table"), nb::arg("kinds"), nb::arg("end_tokens"),
           nb::arg("forced") = nb::none(),
           "library: path of llguidance's shared library; kinds: uint8 [vocab], 0 text, 1 added text, 2 control, 3 "
           "byte;\n"
           "forced: how text that a grammar forces is split before it is merged; None: any tokens may make it up.")
      .def_prop_ro("version", [](const VocabularyHandle& self) { return self.vocabulary->library().version(); })
      .def_prop_ro("vocab", [](const VocabularyHandle& self) { return self.vocabulary->vocab(); })
      .def_prop_ro("forces", [](const VocabularyHandle& self) { return self.vocabulary->forces(); })
      .def("tokenize", &tokenize, nb::arg("text"), "The ids of forced text.")
      .def("compile", &compile, nb::arg("kind"), nb::arg("text"), nb::kw_only(),
           nb::arg("max_grammar_size") = GrammarLimits{}.max_grammar_size,
           nb::arg("compile_fuel") = GrammarLimits{}.compile_fuel,
           "Compiles a grammar of kind json_schema, regex, lark or llguidance without the interpreter's lock.");

  m.def("grammar_after", &after_marker, nb::arg("grammar"), nb::arg("marker"), nb::arg("table"), nb::arg("end_tokens"),
        "A grammar for what follows `marker`: until then everything but an end token is allowed.");
  m.def(
      "llguidance_version", [](const std::string& library) { return LlguidanceLibrary(library).version(); },
      nb::arg("library"), release, "The version of llguidance's shared library; raises where it cannot be used.");
  m.def("python_grammar", &make_python_grammar, nb::arg("matcher"), nb::arg("vocab"),
        "A grammar over an llguidance.LLMatcher: every token takes the interpreter's lock.");
}

}  // namespace octavo
