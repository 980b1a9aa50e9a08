#pragma once
#include "backend/cuda/kernels/draw_row.cuh"

// The stages that change logits, in the order of sample/stages.h.
namespace octavo::cuda {

// Takes the token before into what penalties and bad words look at.
__device__ inline void take_last_token(const DrawRow& r, const int32_t* tokens) {
  if (r.last_token < 0) return;
  const int32_t token = tokens[r.last_token];
  if (r.seen != nullptr) {
    const int32_t n = *r.num_seen;
    bool found = false;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < n; i += kDrawThreads) {
      if (r.seen[i].token != token) continue;
      ++r.seen[i].output;
      found = true;
    }
    found = __syncthreads_or(found) != 0;
    if (!found && threadIdx.x == 0 && n < r.seen_capacity) {
      r.seen[n] = {token, 1, 0};
      *r.num_seen = n + 1;
    }
  }
  if (r.output != nullptr && threadIdx.x == 0) r.output[r.output_length - 1] = token;
  __syncthreads();
}

__device__ inline void add_bias(float* row, const DrawRow& r) {
  for (int i = static_cast<int>(threadIdx.x); i < r.num_bias; i += kDrawThreads) {
    const int32_t token = r.bias[i].token;
    if (i > 0 && r.bias[i - 1].token == token) continue;  // who has the first adds them all, in their order
    float logit = row[token];
    for (int k = i; k < r.num_bias && r.bias[k].token == token; ++k) logit = __fadd_rn(logit, r.bias[k].bias);
    row[token] = logit;
  }
}

__device__ inline void penalize(float* row, const DrawRow& r) {
  if (r.seen == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x); i < *r.num_seen; i += kDrawThreads) {
    const SeenToken seen = r.seen[i];
    if (seen.output == 0 && seen.in_prompt == 0) continue;
    float logit = row[seen.token];
    logit = logit > 0.0f ? __fdiv_rn(logit, r.repetition_penalty) : __fmul_rn(logit, r.repetition_penalty);
    if (seen.output > 0) {
      logit = __fsub_rn(logit, __fmul_rn(r.frequency_penalty, static_cast<float>(seen.output)));
      logit = __fsub_rn(logit, r.presence_penalty);
    }
    row[seen.token] = logit;
  }
}

__device__ inline void mask_bad_words(float* row, const DrawRow& r) {
  for (int w = static_cast<int>(threadIdx.x); w < r.num_bad_words; w += kDrawThreads) {
    const int32_t begin = w == 0 ? 0 : r.bad_word_ends[w - 1], prefix = r.bad_word_ends[w] - begin - 1;
    if (prefix > r.output_length) continue;
    bool ends_so = true;
    for (int32_t i = 0; i < prefix && ends_so; ++i)
      ends_so = r.bad_word_tokens[begin + i] == r.output[r.output_length - prefix + i];
    if (ends_so) row[r.bad_word_tokens[begin + prefix]] = -INFINITY;
  }
}

__device__ inline void mask_tokens(float* row, int vocab, const DrawRow& r) {
  for (int i = static_cast<int>(threadIdx.x); i < r.num_stops; i += kDrawThreads) row[r.stops[i]] = -INFINITY;
  if (r.allowed == nullptr && r.grammar == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += kDrawThreads) {
    unsigned bits = kAllLanes;
    if (r.allowed != nullptr) bits &= r.allowed[i / 32];
    if (r.grammar != nullptr) bits &= r.grammar[i / 32];
    if ((bits >> (i % 32) & 1) == 0) row[i] = -INFINITY;
  }
}

__device__ inline void change_logits(const float* raw, float* row, int vocab, const DrawRow& r) {
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += kDrawThreads) row[i] = raw[i];
  __syncthreads();
  add_bias(row, r);
  __syncthreads();
  penalize(row, r);
  __syncthreads();
  mask_bad_words(row, r);
  mask_tokens(row, vocab, r);
  __syncthreads();
}

}  // namespace octavo::cuda
