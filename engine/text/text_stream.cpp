#include "text/text_stream.h"

#include <utility>

#include "base/reserve.h"

namespace octavo {

namespace {

size_t character_length(char lead) {
  const auto b = static_cast<uint8_t>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

}  // namespace

TextStream::TextStream(const TokenTable* table, std::shared_ptr<const StopStrings> stops, TextOptions options)
    : stops_(stops && !stops->empty() ? std::move(stops) : nullptr), options_(std::move(options)) {
  if (options_.pauses && options_.paused) pause_.pause = 0;
  if (table) detokenizer_.emplace(*table, options_.skip_special, options_.at_text_start);
}

void TextStream::detokenize(int32_t token) {
  const size_t before = held_.size();
  detokenizer_->push(token, held_);
  // The incomplete bytes carried over are one sequence: the first character made now is theirs, complete or U+FFFD.
  if (open_ > 0 && held_.size() > before) {
    ends_.insert(ends_.end(), open_, released_ + before + character_length(held_[before]));
    open_ = 0;
  }
  if (detokenizer_->pending() > 0) {
    ++open_;
  } else {
    ends_.push_back(released_ + held_.size());
  }
}

bool TextStream::match(size_t from, Released& released) {
  if (!stops_) return false;
  for (size_t i = from; i < held_.size(); ++i) {
    const auto byte = static_cast<uint8_t>(held_[i]);
    if (options_.pauses && options_.pauses->advance(pause_, byte)) {
      node_ = StopStrings::kRoot;
      continue;
    }
    node_ = stops_->advance(node_, byte);
    const int32_t stop = stops_->match(node_);
    if (stop < 0 || count_ <= options_.min_tokens) continue;
    held_.resize(options_.include_stop ? i + 1 : i + 1 - stops_->length(stop));
    released.stop = stop;
    return true;
  }
  return false;
}

Released TextStream::release(size_t bytes, std::string& text) {
  text.append(held_, 0, bytes);
  held_.erase(0, bytes);
  released_ += bytes;
  Released released;
  while (released.tokens < static_cast<int32_t>(ends_.size()) && ends_[released.tokens] <= released_) ++released.tokens;
  ends_.erase(ends_.begin(), ends_.begin() + released.tokens);
  return released;
}

Released TextStream::release_all(std::string& text) {
  const int32_t tokens = held_tokens();
  release(held_.size(), text);
  ends_.clear();
  open_ = 0;
  return {.tokens = tokens};
}

Released TextStream::push(int32_t token, std::string& text) {
  ++count_;
  if (!detokenizer_) return {.tokens = 1};
  if (!stops_ && held_tokens() == 0) {  // whole characters need not be held
    const size_t before = text.size();
    detokenizer_->push(token, text);
    released_ += text.size() - before;
    open_ = detokenizer_->pending() > 0 ? 1 : 0;
    return {.tokens = 1 - open_};
  }
  const size_t before = held_.size();
  detokenize(token);
  Released stopped;
  if (match(before, stopped)) {
    stopped.tokens = release_all(text).tokens;
    return stopped;
  }
  return release(held_.size() - (stops_ ? stops_->depth(node_) : 0), text);
}

Released TextStream::finish(std::string& text) {
  if (!detokenizer_) return {};
  constexpr size_t kReplacement = 3;  // bytes of U+FFFD, which stands for an incomplete character
  reserve_more(held_, kReplacement);
  reserve_more(text, held_.size() + kReplacement);
  const size_t before = held_.size();
  detokenizer_->flush(held_);
  Released released;
  match(before, released);
  released.tokens = release_all(text).tokens;
  return released;
}

Released TextStream::finish_at_stop_token(int32_t token, std::string& text) {
  ++count_;
  if (!detokenizer_) return {.tokens = 1};
  if (options_.include_stop) detokenizer_->push(token, held_);
  detokenizer_->flush(held_);
  ++open_;
  return release_all(text);
}

}  // namespace octavo
