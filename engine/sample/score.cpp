#include "sample/score.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "sample/select.h"

namespace octavo {

namespace {

struct LogSoftmax {
  float max = 0.0f;
  double log_sum = 0.0;
  float operator()(float logit) const {
    return std::max(static_cast<float>(double{logit} - max - log_sum), kMinLogprob);
  }
};

SampleStatus prepare(const float* logits, int vocab, SampleScratch& scratch, LogSoftmax& result) {
  const RowKernels& kernels = row_kernels();
  const RowScan scan = kernels.scan(logits, vocab, scratch.block_max.data());
  if (!scan.finite || std::isinf(scan.max)) return SampleStatus::kNonFinite;
  result = {scan.max, std::log(kernels.sum_exp(logits, vocab, scan.max))};
  return SampleStatus::kOk;
}

// Masked tokens (-inf) are listed only where the others do not suffice, by ascending id.
void list_best(const float* logits, int vocab, int count, const LogSoftmax& logprob, SampleScratch& scratch,
               std::vector<TokenLogprob>& out) {
  out.clear();
  if (count <= 0) return;
  count = std::min(count, vocab);
  out.reserve(count);
  const int found = select_top(logits, vocab, count, scratch);
  uint64_t* keys = scratch.keys.data();
  std::sort(keys, keys + found, std::greater<>());
  for (int i = 0; i < found; ++i) {
    const float logit = key_logit(keys[i]);
    const bool tie = i > 0 && logit == key_logit(keys[i - 1]);
    out.push_back({key_token(keys[i]), logprob(logit), tie ? out.back().rank : i + 1});
  }
  for (int32_t token = 0; static_cast<int>(out.size()) < count; ++token) {
    if (std::isinf(logits[token])) out.push_back({token, kMinLogprob, found + 1});
  }
}

}  // namespace

SampleStatus score_token(const float* logits, int vocab, int32_t token, int top, SampleScratch& scratch,
                         PositionLogprobs& out) {
  LogSoftmax logprob;
  const SampleStatus status = prepare(logits, vocab, scratch, logprob);
  if (status != SampleStatus::kOk) return status;
  out.chosen = {token, logprob(logits[token]), 1 + row_kernels().count_greater(logits, vocab, logits[token])};
  list_best(logits, vocab, top, logprob, scratch, out.top);
  return SampleStatus::kOk;
}

SampleStatus best_tokens(const float* logits, int vocab, int count, SampleScratch& scratch,
                         std::vector<TokenLogprob>& out) {
  LogSoftmax logprob;
  const SampleStatus status = prepare(logits, vocab, scratch, logprob);
  if (status == SampleStatus::kOk) list_best(logits, vocab, count, logprob, scratch, out);
  return status;
}

}  // namespace octavo
