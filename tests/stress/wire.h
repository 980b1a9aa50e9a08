#pragma once
#include <string>

#include "runtime/channel.h"

// The socket that a request's text is written to directly, and what must arrive there.
class Wire {
 public:
  // Some readers read nothing before the end, and some go away.
  Wire(octavo::Channel& channel, octavo::RequestId id);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void take(const octavo::Delta& delta);
  bool ends_as_told();  // once nothing is written any more

 private:
  void read();

  octavo::Channel& channel_;
  const octavo::RequestId id_;
  int reader_ = -1;
  int deltas_ = 0;
  bool whole_ = true;  // all that was sent can still be read
  std::string arrived_, told_;
};
