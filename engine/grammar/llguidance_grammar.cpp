#include "grammar/llguidance_grammar.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/format.h"
#include "base/own_stack.h"

namespace octavo {

namespace {

// The compiler recurses for each level of a grammar and for each rule or reference on the way down. A level takes a few
// KiB of stack and at least 9 bytes of text.
constexpr size_t kStackBytes = size_t{16} << 20;
constexpr size_t kStackBytesPerByte = 1024;

constexpr std::string_view kNothingFits = "NoExtensionBias";  // the library's word

// The library's message without its dump of the parser's state.
[[noreturn]] void fail(const LlguidanceLibrary& library, LlgMatcher* matcher, const char* what) {
  const char* told = library.get_error(matcher);
  std::string_view why = told == nullptr ? "no reason given" : told;
  why = why.substr(0, std::min(why.find("\n<state>"), why.find("\n<non-verbose/>")));
  if (why.starts_with(kNothingFits)) why = "no text fits it";
  throw Error(ErrorCode::kInvalidArgument, "grammar", cat(what, why));
}

class LlguidanceConstraint final : public Constraint {
 public:
  LlguidanceConstraint(std::shared_ptr<const GrammarVocabulary> vocabulary, LlgMatcher* matcher)
      : vocabulary_(std::move(vocabulary)), library_(vocabulary_->library()), matcher_(matcher) {}
  ~LlguidanceConstraint() override { library_.free_matcher(matcher_); }

  std::unique_ptr<Constraint> fork() const override {
    return std::make_unique<LlguidanceConstraint>(vocabulary_, library_.clone_matcher(matcher_));
  }

  void fill_mask(std::span<uint32_t> bits) override {
    if (done()) {
      std::ranges::fill(bits, 0);
      for (const int32_t token : vocabulary_->end_tokens()) bits[token / 32] |= 1u << (token % 32);
    } else if (library_.compute_mask_into(matcher_, bits.data(), bits.size_bytes()) != 0) {
      fail(library_, matcher_, "the grammar cannot go on: ");
    }
  }

  void accept(int32_t token) override {
    if (done() && std::ranges::count(vocabulary_->end_tokens(), token) > 0) return;
    if (library_.consume_token(matcher_, static_cast<uint32_t>(token)) != 0)
      fail(library_, matcher_, "the grammar does not allow what was generated: ");
  }

  void rollback(int tokens) override {
    if (library_.rollback(matcher_, static_cast<size_t>(tokens)) != 0)
      fail(library_, matcher_, "the grammar cannot go back: ");
  }

  bool done() const override { return library_.is_stopped(matcher_); }

  void list_forced(std::vector<int32_t>& tokens) override {
    if (!vocabulary_->forces() || done()) return;
    std::array<uint32_t, 256> forced;
    const int32_t count = library_.compute_ff_tokens(matcher_, forced.data(), forced.size());
    if (count > 0) tokens.insert(tokens.end(), forced.begin(), forced.begin() + count);
  }

 private:
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const LlguidanceLibrary& library_;
  LlgMatcher* matcher_;
};

}  // namespace

LlguidanceGrammar::LlguidanceGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string& kind,
                                     const std::string& text, const GrammarLimits& limits)
    : vocabulary_(std::move(vocabulary)) {
  const LlguidanceLibrary& library = vocabulary_->library();
  if (text.find('\0') != std::string::npos)
    throw Error(ErrorCode::kInvalidArgument, "grammar", "the grammar must not contain a NUL character");
  LlgMatcherInit init{};
  library.set_defaults(&init, vocabulary_->handle());
  init.log_buffer_level = 0;
  init.log_stderr_level = 0;
  init.limits.max_grammar_size = limits.max_grammar_size;
  init.limits.initial_lexer_fuel = limits.compile_fuel;
  init.limits.max_lexer_states = limits.max_lexer_states;
  init.limits.step_lexer_fuel = limits.step_lexer_fuel;
  init.limits.step_max_items = limits.step_max_items;
  init.limits.verbose_errors = false;
  run_on_own_stack(kStackBytes + kStackBytesPerByte * text.size(),
                   [&] { matcher_ = library.new_matcher(&init, kind.c_str(), text.c_str()); });
  if (library.get_error(matcher_) == nullptr) return;
  try {
    fail(library, matcher_, "");
  } catch (...) {
    library.free_matcher(matcher_);
    throw;
  }
}

LlguidanceGrammar::~LlguidanceGrammar() { vocabulary_->library().free_matcher(matcher_); }

std::unique_ptr<Constraint> LlguidanceGrammar::start() const {
  std::lock_guard lock(mutex_);
  return std::make_unique<LlguidanceConstraint>(vocabulary_, vocabulary_->library().clone_matcher(matcher_));
}

}  // namespace octavo
