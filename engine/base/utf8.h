#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace octavo {

// Turns a stream of bytes into valid UTF-8, whatever the split. An incomplete trailing sequence is held until it is
// complete or impossible; what is not UTF-8 becomes U+FFFD, one per maximal subpart (Unicode 16, section 3.9,
// "U+FFFD Substitution of Maximal Subparts"; the practice of WHATWG's decoder, Python and Rust).
class Utf8Decoder {
 public:
  void push(std::string_view bytes, std::string& out);  // appends what is complete
  void flush(std::string& out);                         // end of input: a held sequence becomes one U+FFFD
  int pending() const { return have_; }                 // bytes held, 0 to 3

 private:
  // Starts a sequence with `lead`, or appends what needs no continuation.
  void start(uint8_t lead, std::string& out);

  char held_[4] = {};
  uint8_t have_ = 0;
  uint8_t length_ = 0;       // bytes of the sequence under way
  uint8_t next_min_ = 0x80;  // range of the next continuation byte: excludes overlong forms, surrogates, > U+10FFFF
  uint8_t next_max_ = 0xBF;
};

bool is_valid_utf8(std::string_view text);

}  // namespace octavo
