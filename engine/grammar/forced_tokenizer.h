#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/token_table.h"

namespace octavo {

enum class TokenKind : uint8_t {
  kText,     // found by merging
  kAdded,    // text that is always this one token, such as <tool_call>
  kControl,  // never text
  kByte,     // a byte for which there is no text token
};

// Where text is split before its pieces are merged.
enum class WordSplit : uint8_t {
  kBlankJoinsWord,  // a word takes one blank before it, other blanks stand alone: byte-level vocabularies
  kBlanksJoinWord,  // a word takes all of them: SentencePiece, which does not split at all
};

// Byte-pair encoding (Sennrich et al., 2016) over the token table alone, for text that a grammar forces: pairs merge in
// the order of the merged token's id, as in vocabularies that list tokens as they were learned. Text is split before
// spaces only, so the result need not be the tokenizer's own; whoever relies on that compares first.
class ForcedTokenizer {
 public:
  // kinds: [vocab]
  ForcedTokenizer(std::shared_ptr<const TokenTable> table, const std::vector<TokenKind>& kinds, WordSplit split);

  // Text beyond this, and behind the word that reaches it, is left for later: what is forced may be very long, and is
  // asked for again as it gets shorter.
  static constexpr size_t kMostBytes = 1024;

  // Appends the ids of `text`, or of its first kMostBytes. Bytes that no token stands for are left out.
  void tokenize(std::string_view text, std::vector<uint32_t>& ids) const;

 private:
  void plain(std::string_view text, std::vector<uint32_t>& ids, size_t most = SIZE_MAX) const;
  void word(std::string_view text, std::vector<uint32_t>& ids) const;
  int32_t added_at(std::string_view text) const;  // the longest added token that `text` starts with, -1: none

  std::shared_ptr<const TokenTable> table_;
  WordSplit split_;
  std::unordered_map<std::string_view, uint32_t> ids_;  // keys lie in the table
  std::vector<int32_t> added_[256];                     // by first byte
};

}  // namespace octavo
