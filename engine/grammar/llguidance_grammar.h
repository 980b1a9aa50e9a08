#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "grammar/grammar_vocabulary.h"
#include "sample/constraint.h"

namespace octavo {

// Bounds of what one grammar may cost.
struct GrammarLimits {
  size_t max_grammar_size = 200'000;   // symbols in productions
  uint64_t compile_fuel = 1'000'000;   // of the lexer's automata, about 50 a microsecond
  size_t max_lexer_states = 100'000;   // about 2 KiB each
  uint64_t step_lexer_fuel = 200'000;  // for one token's mask
  size_t step_max_items = 10'000;      // of the parser, for one token's mask, a few microseconds each
};

// A grammar that llguidance compiled: its constraints are copies of one matcher that has consumed nothing.
class LlguidanceGrammar final : public Grammar {
 public:
  // kind: "json_schema", "regex", "lark" or "llguidance". Throws Error(kInvalidArgument, "grammar", why) for what
  // cannot be compiled within the limits.
  LlguidanceGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string& kind,
                    const std::string& text, const GrammarLimits& limits);
  ~LlguidanceGrammar() override;

  std::unique_ptr<Constraint> start() const override;
  int vocab() const override { return vocabulary_->vocab(); }

 private:
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  LlgMatcher* matcher_;
  mutable std::mutex mutex_;  // one thread at a time may copy the matcher
};

}  // namespace octavo
