#include "runtime/direct_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <utility>

namespace octavo {

void append_json_escaped(std::string_view text, std::string& to) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
      case '\\':
        to += '\\';
        to += c;
        break;
      case '\b':
        to += "\\b";
        break;
      case '\f':
        to += "\\f";
        break;
      case '\n':
        to += "\\n";
        break;
      case '\r':
        to += "\\r";
        break;
      case '\t':
        to += "\\t";
        break;
      default:
        if (byte < 0x20) {
          to += "\\u00";
          to += kHex[byte >> 4];
          to += kHex[byte & 15];
        } else {
          to += c;
        }
    }
  }
}

DirectStream::DirectStream(int fd, std::string head, std::string tail)
    : fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)), head_(std::move(head)), tail_(std::move(tail)) {}

DirectStream::~DirectStream() {
  if (open()) close(fd_);
}

DirectStream::DirectStream(DirectStream&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), head_(std::move(other.head_)), tail_(std::move(other.tail_)) {}

void DirectStream::write_frame(std::string_view text) {
  escaped_.clear();
  append_json_escaped(text, escaped_);
  char length[24];
  const int digits = std::snprintf(length, sizeof length, "%zx\r\n", head_.size() + escaped_.size() + tail_.size());
  frame_.assign(length, static_cast<size_t>(digits));
  frame_ += head_;
  frame_ += escaped_;
  frame_ += tail_;
  frame_ += "\r\n";
}

DirectStream::Result DirectStream::send(std::string_view text, std::string& rest) noexcept {
  try {
    write_frame(text);
  } catch (const std::bad_alloc&) {
    return Result::kNothing;
  }
  const ssize_t sent = ::send(fd_, frame_.data(), frame_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(frame_.size())) return Result::kAll;
  if (sent <= 0) return Result::kNothing;
  frame_.erase(0, static_cast<size_t>(sent));
  rest = std::move(frame_);
  return Result::kPart;
}

}  // namespace octavo
