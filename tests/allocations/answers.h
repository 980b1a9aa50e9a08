#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/channel.h"

// What one choice of a request was told.
struct Answer {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
  octavo::Finish finish = octavo::Finish::kNone;
  octavo::ErrorCode error = octavo::ErrorCode::kInternal;  // with Finish::kError

  bool failed() const { return finish == octavo::Finish::kError; }
  bool complete() const { return finish == octavo::Finish::kStop || finish == octavo::Finish::kLength; }
};

// The answers to some requests; it complains of whatever may never be.
class Answers {
 public:
  enum class Kind {
    kPlain,
    kFork,    // of another request's answer, which may not have come as far
    kRanked,  // which choices are the best is known in the end alone
  };
  void expect(octavo::RequestId id, int choices, Kind kind = Kind::kPlain);
  void take(std::vector<octavo::Delta> deltas);
  bool all_ended() const { return left_ == 0; }
  // Against those of the undisturbed run, in which nobody was cancelled: an answer is the same or, where it was ended
  // from outside, its beginning. With `lone`, at most one request may have failed.
  void compare(const Answers& quiet, bool lone);

  int failed_requests() const;  // for want of memory
  // What was wrong; empty: nothing.
  const std::string& complaint() const { return complaint_; }
  void complain(octavo::RequestId id, const std::string& what);

 private:
  std::map<octavo::RequestId, std::vector<Answer>> requests_;
  std::map<octavo::RequestId, Kind> kinds_;
  int left_ = 0;  // choices that have not ended
  std::string complaint_;
};
