#include "base/utf8.h"

namespace octavo {

namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
}

void Utf8Decoder::start(uint8_t lead, std::string& out) {
  if (lead < 0x80) {
    out.push_back(static_cast<char>(lead));
    return;
  }
  if (lead < 0xC2 || lead > 0xF4) {
    out.append(kReplacement);
    return;
  }
  length_ = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  next_min_ = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  next_max_ = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  held_[0] = static_cast<char>(lead);
  have_ = 1;
}

void Utf8Decoder::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto b = static_cast<uint8_t>(c);
    if (have_ == 0) {
      start(b, out);
    } else if (b >= next_min_ && b <= next_max_) {
      held_[have_++] = c;
      next_min_ = 0x80;
      next_max_ = 0xBF;
      if (have_ == length_) {
        out.append(held_, have_);
        have_ = 0;
      }
    } else {
      have_ = 0;
      out.append(kReplacement);
      start(b, out);
    }
  }
}

void Utf8Decoder::flush(std::string& out) {
  if (have_ != 0) out.append(kReplacement);
  have_ = 0;
}

bool is_valid_utf8(std::string_view text) {
  Utf8Decoder decoder;
  std::string out;
  decoder.push(text, out);
  return decoder.pending() == 0 && out == text;
}

}  // namespace octavo
