#pragma once
#include <map>
#include <string>
#include <vector>

#include "runtime/delta.h"

// What one choice of a request has said so far.
struct Spoken {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text;
  octavo::Finish finish = octavo::Finish::kNone;

  void add(const octavo::Delta& delta);
  bool operator==(const Spoken&) const = default;
  bool begins(const Spoken& whole) const;  // it is whole, or was cut off on its way there
};

using Answer = std::map<int32_t, Spoken>;  // by choice

bool ended(const Answer& answer, int choices);
