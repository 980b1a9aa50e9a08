#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/channel.h"
#include "runtime/delta.h"
#include "sample/params.h"
#include "text/text_stream.h"

namespace octavo {

// What a caller submits: token ids in, deltas out through `channel`.
struct SubmitRequest {
  std::vector<int32_t> prompt;
  std::shared_ptr<const SamplingParams> params;
  std::shared_ptr<Channel> channel;
  uint64_t prefix_namespace = 0;
  int32_t priority = 0;
};

// The output side of one sequence: it turns sampled tokens into released text, tokens and logprobs, and decides when
// the sequence ends.
class Choice {
 public:
  Choice(SeqId seq, int32_t index, const SamplingParams& params, const TokenTable* table,
         std::shared_ptr<const StopStrings> stops);

  SeqId seq() const { return seq_; }
  Finish finish() const { return finish_; }

  // Takes the next token of the sequence; returns true when it is the last one. `limit`: tokens this choice may have.
  // `eos` are the model's own end tokens: they end the text without being named as its stop reason.
  bool push(int32_t token, PositionLogprobs logprobs, int32_t limit, const std::vector<int32_t>& eos);

  // Ends the choice from outside (abort, error): held text is released.
  void end(Finish why);

  // Moves what has been released since the last call into `delta`; false when there is nothing to tell.
  bool take(Delta& delta);

 private:
  SeqId seq_;
  int32_t index_;
  const SamplingParams* params_;
  TextStream text_;
  std::vector<int32_t> tokens_;             // not told yet; the first `released_` of them may be
  std::vector<PositionLogprobs> logprobs_;  // parallel to tokens_ when asked for
  size_t released_ = 0;
  std::string ready_text_;
  int32_t num_tokens_ = 0;
  Finish finish_ = Finish::kNone;
  bool finish_told_ = false;
  std::variant<std::monostate, int32_t, std::string> stop_reason_;
};

// A request under way: a sequence group as its caller sees it.
struct Request {
  RequestId id = 0;
  std::shared_ptr<const SamplingParams> params;
  std::shared_ptr<Channel> channel;
  int32_t prompt_tokens = 0;
  int32_t max_new_tokens = 0;  // after clamping to the window and the pool
  int32_t cached_tokens = 0;
  RequestTimes times;
  std::vector<Choice> choices;
  std::vector<PositionLogprobs> prompt_logprobs;  // collected chunk by chunk, entry i scores prompt token i + 1
  bool prompt_logprobs_due = false;
  size_t live_choices() const;
};

}  // namespace octavo
