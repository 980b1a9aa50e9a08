#pragma once
#include <cstdint>
#include <string>

#include "base/utf8.h"
#include "text/token_table.h"

namespace octavo {

// Token ids to text, one at a time. The concatenation of what push() and flush() append is the text of all ids,
// however they are split, and equals the reference tokenizer's decode(ids, skip_special_tokens) with
// clean_up_tokenization_spaces=False. A copy continues on its own (fork).
class Detokenizer {
 public:
  // `at_text_start`: the first byte stands at position 0 of the text. False where the tokens continue a prompt: then
  // no leading space is stripped.
  Detokenizer(const TokenTable& table, bool skip_special, bool at_text_start)
      : table_(&table), skip_special_(skip_special), strip_space_(at_text_start && table.strip_leading_space) {}

  // Appends the complete characters. An id outside the table stands for no text, as in the reference.
  void push(int32_t token, std::string& out);
  void flush(std::string& out) { utf8_.flush(out); }
  int pending() const { return utf8_.pending(); }  // bytes held

 private:
  const TokenTable* table_;
  bool skip_special_;
  bool strip_space_;
  Utf8Decoder utf8_;
};

}  // namespace octavo
