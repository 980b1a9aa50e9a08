#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// The bytes every token id stands for, made once from the tokenizer (octavo.tokenizer builds it), and how text
// starts: a table that reproduces the reference tokenizer's decode() with clean_up_tokenization_spaces=False.
struct TokenTable {
  std::string bytes;                 // all tokens' bytes, one after the other
  std::vector<uint32_t> offsets;     // [vocab + 1]
  std::vector<uint8_t> special;      // [vocab] 1: skipped when skip_special_tokens
  bool strip_leading_space = false;  // SentencePiece: one leading space of the text is dropped, at position 0 only

  int vocab() const { return static_cast<int>(special.size()); }
  std::string_view token(int32_t id) const {
    return std::string_view(bytes).substr(offsets[id], offsets[id + 1] - offsets[id]);
  }
};

}  // namespace octavo
