#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sample/constraint.h"

namespace octavo {

// When a beam search ends, once there are as many finished hypotheses as beams.
enum class EarlyStopping : uint8_t {
  kNo,     // when no beam looks as if it could still do better at the length it has
  kYes,    // at once
  kNever,  // when no beam can do better at any length up to max_tokens
};

// How one request's tokens are chosen. Checked in Python (SamplingParams) and again by check_params.
struct SamplingParams {
  float temperature = 1.0f;  // below 1e-5: greedy
  float top_p = 1.0f;        // 0: greedy
  int32_t top_k = 0;         // 0 or -1: off; above the vocabulary: clamped
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // over prompt and output
  float presence_penalty = 0.0f;    // over output
  float frequency_penalty = 0.0f;   // over output
  int32_t n = 1;                    // sequences that are answered with
  int32_t best_of = 0;              // sequences that are computed, the n most likely are kept; 0: n
  int32_t beam_width = 0;           // above 0: beam search with so many beams, the n best hypotheses are kept
  float length_penalty = 1.0f;      // of beams: a hypothesis scores its log-probability / length^length_penalty
  EarlyStopping early_stopping = EarlyStopping::kNo;
  uint64_t seed = 0;  // always set: Python draws fresh entropy when the user gives none
  int32_t max_tokens = 16;
  int32_t min_tokens = 0;        // stop tokens are masked until then
  int32_t logprobs = -1;         // -1: none, 0: the chosen token's, k: and the k best
  int32_t prompt_logprobs = -1;  // the same for every prompt token but the first
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;       // empty: all
  std::vector<std::vector<int32_t>> bad_words;  // token sequences
  std::vector<int32_t> stop_token_ids;          // end the request; includes the model's end tokens unless ignore_eos
  std::vector<std::string> stop;                // strings, matched on the detokenized text
  // Marks between which stop strings are not looked for, such as those of a thought; an empty second one: to the end.
  std::vector<std::pair<std::string, std::string>> stop_pauses;
  bool stop_paused = false;  // the output begins within the first of them
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool detokenize = true;
  std::shared_ptr<const Grammar> grammar;  // what the output must look like; null: anything
};

// The sequences that a request with these parameters computes side by side.
inline int32_t num_sequences(const SamplingParams& p) {
  return p.beam_width > 0 ? p.beam_width : std::max(p.n, p.best_of);
}

}  // namespace octavo
