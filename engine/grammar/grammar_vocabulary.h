#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/forced_tokenizer.h"
#include "grammar/llguidance_library.h"
#include "text/token_table.h"

namespace octavo {

// A model's tokens as llguidance sees them. Made once per model; shared by its grammars and used from any thread.
class GrammarVocabulary {
 public:
  // kinds: [vocab], those of the table or fewer; `end_tokens` are the model's own. With `forced` text that a grammar
  // leaves no choice about is tokenized as ForcedTokenizer does it, and no other tokens are allowed for it.
  GrammarVocabulary(std::shared_ptr<const LlguidanceLibrary> library, std::shared_ptr<const TokenTable> table,
                    const std::vector<TokenKind>& kinds, std::vector<int32_t> end_tokens,
                    std::optional<WordSplit> forced);
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  const LlguidanceLibrary& library() const { return *library_; }
  const LlgTokenizer* handle() const { return handle_; }
  const TokenTable& table() const { return *table_; }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool forces() const { return forces_; }
  int vocab() const { return vocab_; }

 private:
  std::shared_ptr<const LlguidanceLibrary> library_;
  std::shared_ptr<const TokenTable> table_;
  int vocab_;
  std::vector<int32_t> end_tokens_;
  ForcedTokenizer tokenizer_;
  bool forces_;
  LlgTokenizer* handle_ = nullptr;
};

}  // namespace octavo
