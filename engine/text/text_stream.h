#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_pauses.h"
#include "text/stop_strings.h"

namespace octavo {

// What a token set free.
struct Released {
  int32_t tokens = 0;  // this many, from the front of the tokens pushed and not yet released
  int32_t stop = -1;   // the stop string that was found; the stream is at its end then
};

struct TextOptions {
  bool skip_special = true;
  bool include_stop = false;   // cut after the stop string or token instead of before it
  bool at_text_start = false;  // the output does not continue a prompt's text
  int32_t min_tokens = 0;      // a stop string counts only where it ends in text of a later token than these
  std::shared_ptr<const StopPauses> pauses;  // where stop strings are not looked for; null: nowhere
  bool paused = false;                       // the text begins within the first of them
};

// The output text of one choice: detokenizes and looks for stop strings.
//  - A text is released as soon as no suffix of it can become a stop string or an incomplete character.
//  - A token is released with its last byte (tokens without text with the text before them), in order.
//  - The stop string that ends first wins; of those that end at one byte the longest. Text is cut at it, and every
//    token pushed so far is released: reported alike, streamed or not.
// A copy continues on its own (fork).
class TextStream {
 public:
  // Without a table there is no text, and every token is released at once (detokenize=false).
  // `table` outlives the stream; `stops` may be null.
  TextStream(const TokenTable* table, std::shared_ptr<const StopStrings> stops, TextOptions options);

  // Each appends the released text to `text`.
  Released push(int32_t token, std::string& text);
  // The end by length or abort: releases all that was held. Changes nothing when it throws.
  Released finish(std::string& text);
  // The end by a stop token: its own text is part of the output only with include_stop.
  Released finish_at_stop_token(int32_t token, std::string& text);

  int32_t held_tokens() const { return static_cast<int32_t>(ends_.size()) + open_; }

 private:
  void detokenize(int32_t token);
  // Looks for stop strings in held_[from:]. True: one was found, and held_ is cut.
  bool match(size_t from, Released& released);
  Released release(size_t bytes, std::string& text);
  Released release_all(std::string& text);

  std::optional<Detokenizer> detokenizer_;  // none: no text
  std::shared_ptr<const StopStrings> stops_;
  TextOptions options_;
  StopStrings::Node node_ = StopStrings::kRoot;
  StopPauses::State pause_;
  std::string held_;            // text made and not yet released
  uint64_t released_ = 0;       // bytes of text released; held_ starts here
  std::vector<uint64_t> ends_;  // where the text of each held token ends
  int32_t open_ = 0;            // held tokens behind those whose end lies in an incomplete character
  int32_t count_ = 0;           // tokens pushed
};

}  // namespace octavo
