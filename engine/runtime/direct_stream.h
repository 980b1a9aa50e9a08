#pragma once
#include <string>
#include <string_view>

namespace octavo {

// Writes the text of one request to its reader's socket: each piece as one chunk of HTTP/1.1 that holds one event,
// alike but for the text. No interpreter has to run for a token.
class DirectStream {
 public:
  // fd: a connected stream socket; a duplicate is kept. head, tail: the event before and behind the text, which stands
  // in it as a JSON string without its quotes.
  DirectStream(int fd, std::string head, std::string tail);
  ~DirectStream();
  DirectStream(DirectStream&& other) noexcept;
  DirectStream& operator=(DirectStream&&) = delete;

  bool open() const { return fd_ >= 0; }  // false: no descriptor was left for the duplicate

  enum class Result { kAll, kNothing, kPart };
  // Never waits. text: valid UTF-8. kPart: `rest` must reach the socket before anything else does.
  Result send(std::string_view text, std::string& rest) noexcept;

 private:
  void write_frame(std::string_view text);

  int fd_;
  std::string head_;
  std::string tail_;
  std::string escaped_;
  std::string frame_;
};

// Appends `text` as in a JSON string: control characters, quotes and backslashes escaped, all else as it is.
void append_json_escaped(std::string_view text, std::string& to);

}  // namespace octavo
