#pragma once
#include <cstdint>

namespace octavo {

// Drawing tokens on a device, where the logits lie: the stages of sample/sampler.h in the same integers, and what
// log-probabilities are made of. Plain data; all pointers are device pointers.

struct TokenBias {
  int32_t token = 0;
  float bias = 0.0f;
};

// A token that has occurred: what penalties need.
struct SeenToken {
  int32_t token = -1;
  int32_t output = 0;  // times in the output
  int32_t in_prompt = 0;
};

enum class DrawMode : int32_t { kNone, kGreedy, kRandom };

// One token to be drawn, scored, or both.
struct DrawRow {
  int32_t logits = 0;        // row of DrawParams::logits
  int32_t changed = -1;      // row of DrawParams::changed where a stage changes logits, -1: none does
  int32_t last_token = -1;   // index into DrawParams::tokens of the token before, which is taken into `seen` and
                             // `output` first; -1: it is there already
  int32_t score_token = -1;  // with kNone: the token whose log-probability is wanted
  int32_t scored = 0;        // 1: the token's log-probability is wanted
  int32_t num_best = 0;      // likeliest tokens wanted
  int64_t best = 0;          // their place in DrawParams::best

  DrawMode mode = DrawMode::kGreedy;
  int32_t top_k = 0;  // 0: off
  float top_p = 1.0f;
  uint32_t min_weight = 0;  // min_p in steps of 2^-30
  float scale = 1.0f;       // 1 / temperature
  uint64_t random = 0;      // 64 random bits of seed, position and choice

  const TokenBias* bias = nullptr;  // [num_bias] by ascending token
  int32_t num_bias = 0;
  int32_t seen_capacity = 0;
  SeenToken* seen = nullptr;  // [*num_seen] distinct tokens, null: no penalty
  int32_t* num_seen = nullptr;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t output_length = 0;
  int32_t* output = nullptr;  // [output_length], null: no bad words
  const int32_t* bad_word_tokens = nullptr;
  const int32_t* bad_word_ends = nullptr;  // [num_bad_words] in bad_word_tokens
  int32_t num_bad_words = 0;
  int32_t num_stops = 0;              // 0 once min_tokens are there
  const int32_t* stops = nullptr;     // [num_stops]
  const uint32_t* allowed = nullptr;  // [(vocab + 31) / 32] bits, or null
  const uint32_t* grammar = nullptr;  // the same of this step
};

enum class DrawStatus : int32_t { kOk, kNonFinite, kAllMasked };

struct DrawnToken {
  int32_t token = 0;  // 0 where nothing was drawn: what reads it must find a token
  DrawStatus status = DrawStatus::kOk;
  // Of the raw logits, where the row is scored.
  float logit = 0.0f;
  float max = 0.0f;
  double sum_exp = 0.0;  // of exp(x - max)
  int32_t rank = 0;      // 1 + the logits that are greater
  int32_t reserved = 0;
};

struct DrawParams {
  const float* logits = nullptr;  // [any, vocab]
  int32_t vocab = 0;
  const DrawRow* rows = nullptr;  // [num_rows]
  int32_t num_rows = 0;
  const int32_t* tokens = nullptr;  // of the step
  float* changed = nullptr;         // scratch [any, vocab]
  DrawnToken* drawn = nullptr;      // [num_rows]
  uint64_t* best = nullptr;         // order keys, see sample/select.h, in no order
};

// tokens[i] = drawn[sources[i]].token where sources[i] is not -1.
struct TakeTokensParams {
  int32_t* tokens = nullptr;         // [num_tokens]
  const int32_t* sources = nullptr;  // [num_tokens]
  const DrawnToken* drawn = nullptr;
  int32_t num_tokens = 0;
};

}  // namespace octavo
