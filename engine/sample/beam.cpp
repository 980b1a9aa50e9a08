#include "sample/beam.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace octavo {

BeamSearch::BeamSearch(BeamOptions options) : options_(std::move(options)), beams_(1) {}

double BeamSearch::penalized(double logprob, int32_t length) const {
  return logprob / std::pow(static_cast<double>(length), static_cast<double>(options_.length_penalty));
}

bool BeamSearch::advance(std::span<const std::span<const TokenLogprob>> candidates) {
  merged_.clear();
  for (size_t b = 0; b < beams_.size(); ++b) {
    for (const TokenLogprob& c : candidates[b])
      merged_.push_back({static_cast<int32_t>(b), c.token, beams_[b].logprob + c.logprob});
  }
  // Equal ones stay in the order of beams and of tokens' rank.
  std::ranges::stable_sort(merged_, [](const Candidate& a, const Candidate& b) { return a.logprob > b.logprob; });

  ++length_;
  const bool last = length_ >= options_.max_tokens;
  const auto width = static_cast<size_t>(options_.width);
  live_.clear();
  next_.clear();
  for (size_t i = 0; i < merged_.size() && (i < width || next_.size() < width); ++i) {
    const Candidate& c = merged_[i];
    const int32_t parent = beams_[c.beam].node;
    const bool ends = last || std::ranges::find(options_.stop_token_ids, c.token) != options_.stop_token_ids.end();
    if (ends) {
      // Only what is among the best of its step may become a hypothesis: the others merely fill the beams up.
      if (i < width) finish(parent, c.token, c.logprob);
    } else if (next_.size() < width) {
      live_.push_back({static_cast<int32_t>(nodes_.size()), c.logprob});
      nodes_.push_back({parent, c.token});
      next_.push_back({c.beam, c.token});
    }
  }
  beams_.swap(live_);

  const bool full = finished_.size() == width;
  const bool stop = full && (options_.early_stopping == EarlyStopping::kYes || !can_improve());
  if (!last && !stop) return true;
  beams_.clear();
  next_.clear();
  return false;
}

void BeamSearch::finish(int32_t parent_node, int32_t token, double logprob) {
  const double score = penalized(logprob, length_);
  const auto place =
      std::ranges::find_if(finished_, [&](const Finished& f) { return f.score < score; }) - finished_.begin();
  if (place == options_.width) return;
  finished_.insert(finished_.begin() + place, {static_cast<int32_t>(nodes_.size()), length_, logprob, score});
  nodes_.push_back({parent_node, token});
  if (finished_.size() > static_cast<size_t>(options_.width)) finished_.pop_back();
}

// Whether the best live beam, at the length that suits it best as far as anyone looks, would beat the worst finished.
bool BeamSearch::can_improve() const {
  if (beams_.empty()) return false;
  const bool longest = options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0.0f;
  return penalized(beams_[0].logprob, longest ? options_.max_tokens : length_) > finished_.back().score;
}

std::vector<Hypothesis> BeamSearch::results() const {
  std::vector<Hypothesis> out;
  const size_t n = std::min(finished_.size(), static_cast<size_t>(options_.num_return));
  for (size_t i = 0; i < n; ++i) {
    const Finished& f = finished_[i];
    Hypothesis& h = out.emplace_back();
    h.tokens.resize(static_cast<size_t>(f.length));
    h.cumulative_logprob = f.logprob;
    h.score = f.score;
    int32_t node = f.node;
    for (auto it = h.tokens.rbegin(); it != h.tokens.rend(); ++it) {
      *it = nodes_[node].token;
      node = nodes_[node].parent;
    }
  }
  return out;
}

}  // namespace octavo
