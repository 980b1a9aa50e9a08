#include "text/detokenizer.h"

namespace octavo {

void Detokenizer::push(int32_t token, std::string& out) {
  if (token < 0 || token >= table_->vocab()) return;
  if (skip_special_ && table_->special[token]) return;
  std::string_view bytes = table_->token(token);
  if (bytes.empty()) return;
  if (strip_space_) {
    strip_space_ = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  utf8_.push(bytes, out);
}

}  // namespace octavo
