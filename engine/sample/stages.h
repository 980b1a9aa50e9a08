#pragma once
#include <cstdint>
#include <span>

#include "sample/params.h"
#include "sample/sampler_state.h"

namespace octavo {

// The stages that change logits in place, in the order in which the sampler applies them. row: [vocab]

void apply_logit_bias(std::span<float> row, const SamplingParams& params);

// Repetition (Keskar et al., CTRL, 2019: positive logits are divided by the penalty, others multiplied) over prompt and
// output, then frequency and presence over the output alone.
void apply_penalties(std::span<float> row, const SamplingParams& params, const SamplerState& state);

// Masks the last token of every bad word whose other tokens are the end of the output. What the prompt ends with does
// not count: the word would not be generated whole.
void apply_bad_words(std::span<float> row, const SamplingParams& params, std::span<const int32_t> output);

// `kept`: room for one value per allowed id.
void apply_allowed_tokens(std::span<float> row, const SamplingParams& params, std::span<float> kept);

// Masks the stop tokens while the output is shorter than min_tokens.
void apply_min_tokens(std::span<float> row, const SamplingParams& params, int32_t output_length);

// Masks every token whose bit is not set. bits: [(vocab + 31) / 32]
void apply_mask(std::span<float> row, const uint32_t* bits);

// Whether any of these would change something for this token (the mask apart).
bool changes_logits(const SamplingParams& params, const SamplerState& state);

}  // namespace octavo
