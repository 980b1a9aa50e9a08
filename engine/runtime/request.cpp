#include "runtime/request.h"

#include <algorithm>
#include <utility>

namespace octavo {

namespace {

std::shared_ptr<const StopPauses> pauses_of(const SamplingParams& params) {
  if (params.stop.empty() || params.stop_pauses.empty()) return nullptr;
  return std::make_shared<StopPauses>(params.stop_pauses);
}

}  // namespace

Choice::Choice(int32_t index, const SamplingParams& params, const TokenTable* table,
               std::shared_ptr<const StopStrings> stops)
    : index_(index),
      params_(&params),
      text_(params.detokenize ? table : nullptr, std::move(stops),
            TextOptions{.skip_special = params.skip_special_tokens,
                        .include_stop = params.include_stop_str_in_output,
                        .min_tokens = params.min_tokens,
                        .pauses = pauses_of(params),
                        .paused = params.stop_paused}) {}

bool Choice::push(int32_t token, PositionLogprobs logprobs, int32_t limit, const std::vector<int32_t>& eos,
                  bool complete) {
  ++num_tokens_;
  tokens_.push_back(token);
  cumulative_logprob_ += logprobs.chosen.logprob;
  if (params_->logprobs >= 0) logprobs_.push_back(std::move(logprobs));

  const auto& stop_ids = params_->stop_token_ids;
  const bool is_eos = std::find(eos.begin(), eos.end(), token) != eos.end();
  const bool is_stop = std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
  if ((is_stop && num_tokens_ > params_->min_tokens) || (complete && is_eos)) {
    text_.finish_at_stop_token(token, ready_text_);
    finish_ = Finish::kStop;
    if (!is_eos) stop_reason_ = token;
  } else {
    const Released released = text_.push(token, ready_text_);
    released_ += static_cast<size_t>(released.tokens);
    if (released.stop >= 0) {
      finish_ = Finish::kStop;
      stop_reason_ = params_->stop[released.stop];
    } else if (complete || num_tokens_ >= limit) {
      text_.finish(ready_text_);
      finish_ = complete ? Finish::kStop : Finish::kLength;
    }
  }
  if (finish_ != Finish::kNone) released_ = tokens_.size();
  return finish_ != Finish::kNone;
}

void Choice::end(Finish why) {
  if (finish_ != Finish::kNone) return;
  text_.finish(ready_text_);
  finish_ = why;
  released_ = tokens_.size();
}

bool Choice::has_news() const {
  return released_ > 0 || !ready_text_.empty() || (finish_ != Finish::kNone && !finish_told_);
}

void Choice::take(Delta& delta) {
  const auto n = static_cast<std::ptrdiff_t>(released_);
  // As many as there are tokens, but for one that memory failed for: it has none.
  const auto scored = std::min(n, static_cast<std::ptrdiff_t>(logprobs_.size()));
  delta.token_ids.reserve(released_);
  delta.logprobs.reserve(static_cast<size_t>(scored));
  // Nothing throws from here on.
  delta.choice = index_;
  delta.text = std::exchange(ready_text_, {});
  delta.token_ids.assign(tokens_.begin(), tokens_.begin() + n);
  tokens_.erase(tokens_.begin(), tokens_.begin() + n);
  if (params_->logprobs >= 0) {
    delta.has_logprobs = true;
    delta.logprobs.assign(std::make_move_iterator(logprobs_.begin()),
                          std::make_move_iterator(logprobs_.begin() + scored));
    logprobs_.erase(logprobs_.begin(), logprobs_.begin() + scored);
  }
  released_ = 0;
  if (finish_ != Finish::kNone && !finish_told_) {
    delta.finish = finish_;
    delta.stop_reason = std::move(stop_reason_);
    if (score_ || params_->best_of > params_->n) delta.cumulative_logprob = cumulative_logprob_;
    delta.score = score_;
    finish_told_ = true;
  }
}

void Choice::set_score(double cumulative_logprob, double score) {
  cumulative_logprob_ = cumulative_logprob;
  score_ = score;
}

void Choice::set_history(std::span<const int32_t> tokens, std::span<const int32_t> last) {
  history_.reserve(tokens.size() + last.size());
  set_history(tokens);
  history_.insert(history_.end(), last.begin(), last.end());
}

void Request::keep_best() {
  std::ranges::stable_sort(
      choices, [](const Choice& a, const Choice& b) { return a.cumulative_logprob() > b.cumulative_logprob(); });
  keep_first();
}

void Request::keep_first() {
  choices.erase(choices.begin() + params->n, choices.end());
  for (size_t i = 0; i < choices.size(); ++i) choices[i].set_index(static_cast<int32_t>(i));
}

size_t Request::live_choices() const {
  return static_cast<size_t>(
      std::count_if(choices.begin(), choices.end(), [](const Choice& c) { return c.finish() == Finish::kNone; }));
}

}  // namespace octavo
