#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sample/logprobs.h"
#include "sample/params.h"

namespace octavo {

struct BeamOptions {
  int width = 1;
  int num_return = 1;
  int max_tokens = 1;  // per hypothesis
  float length_penalty = 1.0f;
  EarlyStopping early_stopping = EarlyStopping::kNo;
  std::vector<int32_t> stop_token_ids;
};

// A beam of the next step: beam `parent` of this one and one more token.
struct NextBeam {
  int32_t parent = 0;
  int32_t token = -1;
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // with the end token, where one ended it
  double cumulative_logprob = 0.0;
  double score = 0.0;  // cumulative_logprob / length^length_penalty
};

// Beam search over one prompt, with the end conditions of transformers' generate(). It knows tokens and
// log-probabilities only; whoever holds the sequences forks them as `beams()` says. Histories are a tree of tokens, so
// that a step costs O(width) whatever the length.
class BeamSearch {
 public:
  explicit BeamSearch(BeamOptions options);

  // The likeliest tokens that each live beam must offer: enough to go on with even when end tokens are among them.
  static int candidates_per_beam(int width, size_t stop_tokens) { return width + static_cast<int>(stop_tokens); }

  int num_beams() const { return static_cast<int>(beams_.size()); }  // one before the first step

  // Takes a step: `candidates[b]` are those of beam b, best first. False: the search is over and no beam goes on.
  bool advance(std::span<const std::span<const TokenLogprob>> candidates);

  // After advance(): the beams that go on, best first.
  std::span<const NextBeam> beams() const { return next_; }

  // The num_return best hypotheses, best first. After the last advance().
  std::vector<Hypothesis> results() const;

 private:
  struct Node {
    int32_t parent = -1;  // -1: the end of the prompt
    int32_t token = -1;
  };
  struct Beam {
    int32_t node = -1;
    double logprob = 0.0;
  };
  struct Finished {
    int32_t node = -1;
    int32_t length = 0;
    double logprob = 0.0;
    double score = 0.0;
  };

  void finish(int32_t parent_node, int32_t token, double logprob);
  bool can_improve() const;
  double penalized(double logprob, int32_t length) const;

  BeamOptions options_;
  int32_t length_ = 0;  // tokens of every live beam
  std::vector<Node> nodes_;
  std::vector<Beam> beams_;
  std::vector<NextBeam> next_;
  std::vector<Finished> finished_;  // best first, at most `width`
  // Scratch of advance().
  struct Candidate {
    int32_t beam;
    int32_t token;
    double logprob;
  };
  std::vector<Candidate> merged_;
  std::vector<Beam> live_;
};

}  // namespace octavo
