#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/prefetch.h"
#include "runtime/channel.h"
#include "runtime/delta.h"
#include "sample/beam.h"
#include "sample/params.h"
#include "text/text_stream.h"

namespace octavo {

// What a caller submits: token ids in, deltas out through `channel`.
struct SubmitRequest {
  std::vector<int32_t> prompt;
  std::shared_ptr<const SamplingParams> params;
  std::shared_ptr<Channel> channel;
  uint64_t prefix_namespace = 0;
  int32_t shared_tokens = 0;  // of its first tokens, which all namespaces share
  uint64_t tenant = 0;
  int32_t priority = 0;
  uint32_t first_choice = 0;  // number of its first sequence: with seed and position it keys the random generator
  size_t num_output = 0;      // the last tokens of the prompt that were generated before it was forked
  SeqId source = 0;           // the running sequence it is forked from, 0: none
  std::shared_ptr<uint32_t> next_choice;  // the numbers left for later forks; null: a request of its own
};

// A second continuation of a sequence: of what it is when the engine thread gets there, or of its beginning.
struct ForkRequest {
  RequestId parent = 0;
  int32_t choice = 0;                            // of the parent
  std::optional<int32_t> position;               // tokens kept, prompt included; none: all
  std::shared_ptr<const SamplingParams> params;  // null: the parent's
  std::shared_ptr<Channel> channel;
};

// The output side of one sequence: it turns sampled tokens into released text, tokens and logprobs, and decides when
// the sequence ends.
class Choice {
 public:
  Choice(int32_t index, const SamplingParams& params, const TokenTable* table,
         std::shared_ptr<const StopStrings> stops);

  Finish finish() const { return finish_; }
  double cumulative_logprob() const { return cumulative_logprob_; }  // where the executor scored the tokens
  void set_index(int32_t index) { index_ = index; }
  void set_score(double cumulative_logprob, double score);  // of a beam search

  // All tokens, prompt included, of a choice that has ended: what a fork starts from.
  const std::vector<int32_t>& history() const { return history_; }
  void set_history(std::span<const int32_t> tokens) { history_.assign(tokens.begin(), tokens.end()); }
  void set_history(std::span<const int32_t> tokens, std::span<const int32_t> last);
  std::vector<int32_t> take_history() { return std::move(history_); }

  // Takes the next token of the sequence; returns true when it is the last one. `limit`: tokens this choice may have.
  // `complete`: nothing may follow it.
  // `eos` are the model's own end tokens: they end the text without being named as its stop reason.
  bool push(int32_t token, PositionLogprobs logprobs, int32_t limit, const std::vector<int32_t>& eos,
            bool complete = false);

  // Ends the choice from outside (abort, error): held text is released. Changes nothing when it throws.
  void end(Finish why);

  // Something has been released since the last take().
  bool has_news() const;
  void prefetch_tokens() const { prefetch(tokens_.data(), sizeof(int32_t)); }
  // Moves what has been released since the last call into `delta`. Changes nothing when it throws.
  void take(Delta& delta);

 private:
  int32_t index_;
  const SamplingParams* params_;
  TextStream text_;
  std::vector<int32_t> tokens_;             // not told yet; the first `released_` of them may be
  std::vector<PositionLogprobs> logprobs_;  // parallel to tokens_ when asked for
  size_t released_ = 0;
  std::string ready_text_;
  int32_t num_tokens_ = 0;
  double cumulative_logprob_ = 0.0;
  std::optional<double> score_;
  std::vector<int32_t> history_;
  Finish finish_ = Finish::kNone;
  bool finish_told_ = false;
  std::variant<std::monostate, int32_t, std::string> stop_reason_;
};

// A request under way: a sequence group as its caller sees it. `choices` are what is computed, or the hypotheses that a
// beam search returns.
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
  std::vector<SeqId> seqs;  // live; of a beam search: by beam
  std::unique_ptr<BeamSearch> beams;
  std::vector<std::span<const TokenLogprob>> candidates;  // of its beams, in the step that is committed
  bool ranked = false;                                    // nothing is told before the best choices are known
  // It has ended, `end` says how where its choices did not end by themselves; only the telling is left.
  bool over = false;
  Finish end = Finish::kNone;
  std::shared_ptr<const Refusal> error;
  // What a fork inherits.
  uint64_t prefix_namespace = 0;
  int32_t shared_tokens = 0;
  uint64_t tenant = 0;
  int32_t priority = 0;
  size_t output_start = 0;  // of its tokens, those before it are prompt
  std::shared_ptr<uint32_t> next_choice;

  size_t live_choices() const;
  // Keeps the n likeliest choices (all have ended), likeliest first.
  void keep_best();
  void keep_first();  // n of them, as they stand
};

}  // namespace octavo
