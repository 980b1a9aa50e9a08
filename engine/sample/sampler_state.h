#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sample/params.h"

namespace octavo {

// How often a token has occurred: what the penalties need.
struct TokenCount {
  int32_t token = -1;
  int32_t output = 0;  // times in the output
  bool in_prompt = false;
};

// What one sequence's next token depends on besides its logits. A copy continues on its own (fork).
class SamplerState {
 public:
  SamplerState() = default;
  // Counts are kept only where `params` has a penalty; the prompt counts for the repetition penalty alone.
  SamplerState(const SamplingParams& params, std::span<const int32_t> prompt);

  void append(int32_t token);  // the token was chosen
  void rollback(int tokens);   // the last ones were not, after all

  std::span<const int32_t> output() const { return output_; }
  int32_t output_length() const { return static_cast<int32_t>(output_.size()); }
  std::span<const TokenCount> counts() const { return counts_; }  // distinct tokens; an output count may be back at 0

 private:
  TokenCount& count_of(int32_t token);
  void grow();
  size_t slot_of(int32_t token) const;

  bool counting_ = false;
  std::vector<int32_t> output_;
  std::vector<TokenCount> counts_;
  std::vector<int32_t> slots_;  // open addressing, a power of two, at most half full: index into counts_, -1 empty
};

}  // namespace octavo
