#include "wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

using namespace octavo;

namespace {

constexpr char kHead[] = "data: \"";
constexpr char kTail[] = "\"\n\n";

std::string chunk(const std::string& text) {
  std::string event = kHead;
  append_json_escaped(text, event);
  event += kTail;
  char length[24];
  std::snprintf(length, sizeof length, "%zx\r\n", event.size());
  return length + event + "\r\n";
}

}  // namespace

Wire::Wire(Channel& channel, RequestId id) : channel_(channel), id_(id) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
  reader_ = ends[0];
  const int least = 1;
  setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  channel.send_directly(id, ends[1], kHead, kTail);
  close(ends[1]);  // the channel has a duplicate
}

Wire::~Wire() {
  if (reader_ >= 0) close(reader_);
}

void Wire::take(const Delta& delta) {
  if (delta.sent) told_ += chunk(delta.text);
  if (!delta.rest.empty()) told_.resize(told_.size() - delta.rest.size());
  ++deltas_;
  if (id_ % 3 == 0) read();
  if (id_ % 5 == 0 && deltas_ == 3) channel_.take_back(id_);
  if (id_ % 7 == 0 && deltas_ == 4 && reader_ >= 0) {
    whole_ = false;
    close(reader_);
    reader_ = -1;
  }
}

bool Wire::ends_as_told() {
  channel_.take_back(id_);
  read();
  return !whole_ || arrived_ == told_;
}

void Wire::read() {
  char bytes[4096];
  ssize_t n;
  while (reader_ >= 0 && (n = recv(reader_, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
    arrived_.append(bytes, static_cast<size_t>(n));
}
