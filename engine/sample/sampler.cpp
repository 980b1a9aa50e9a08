#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "sample/philox.h"
#include "sample/select.h"
#include "sample/stages.h"

namespace octavo {

namespace {

constexpr float kGreedyTemperature = 1e-5f;

// Uniform over [0, total).
uint64_t draw_below(uint64_t total, const SampleInput& in) {
  const uint64_t bits = random_bits(in.params->seed, in.position, in.choice, DrawPurpose::kToken);
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * total) >> 64);
}

// A row whose weights are being narrowed down.
class Distribution {
 public:
  Distribution(const float* row, float max, const SampleInput& in, SampleScratch& scratch)
      : row_(row), n_(in.vocab), max_(max), scale_(1.0f / in.params->temperature), in_(in), scratch_(scratch) {}

  int32_t draw() {
    const SamplingParams& p = *in_.params;
    const int candidates = p.top_k > 1 && p.top_k < n_ ? keep_top_k(p.top_k) : weigh_all();
    if (p.top_p < 1.0f) keep_top_p(p.top_p, candidates);
    if (p.min_p > 0.0f) min_weight_ = static_cast<uint32_t>(std::ceil(p.min_p * kWeightOne));
    return cut_ == 0 && min_weight_ == 0 ? draw_from_all() : draw_from_rest();
  }

 private:
  static constexpr int kNoCandidates = -1;

  // All tokens. Candidates are not listed yet.
  int weigh_all() {
    total_ = row_kernels().weigh(row_, n_, max_, scale_, scratch_.weights.data(), scratch_.block_mass.data());
    return kNoCandidates;
  }

  int keep_top_k(int k) {
    const int count = select_top(row_, n_, k, scratch_);
    cut_ = scratch_.keys[count - 1];
    for (int i = 0; i < count; ++i) scratch_.gathered[i] = key_logit(scratch_.keys[i]);
    total_ =
        row_kernels().weigh(scratch_.gathered.data(), count, max_, scale_, scratch_.gathered_weights.data(), nullptr);
    for (int i = 0; i < count; ++i) scratch_.weights[key_token(scratch_.keys[i])] = scratch_.gathered_weights[i];
    return count;
  }

  void keep_top_p(float top_p, int count) {
    const auto share = static_cast<uint64_t>(std::ceil(double{top_p} * static_cast<double>(total_)));
    const uint64_t need = std::clamp<uint64_t>(share, 1, total_);
    if (count == kNoCandidates) count = collect_mass(need);
    cut_ = mass_cut(scratch_.keys.data(), count, scratch_.weights.data(), need);
  }

  // Lists a prefix of the ordered tokens that holds at least the mass `need`. The largest logit weighs 2^30 and what
  // is 24 temperatures below it nothing, so the last round holds all the mass.
  int collect_mass(uint64_t need) {
    for (float depth = 3.0f;; depth *= 2.0f) {
      const int count = collect_at_least(row_, n_, max_ - depth / scale_, scratch_);
      uint64_t mass = 0;
      for (int i = 0; i < count; ++i) mass += scratch_.weights[key_token(scratch_.keys[i])];
      if (mass >= need) return count;
    }
  }

  int32_t draw_from_all() {
    uint64_t target = draw_below(total_, in_);
    int block = 0;
    for (; target >= scratch_.block_mass[block]; ++block) target -= scratch_.block_mass[block];
    int32_t token = block * kScanBlock;
    for (; target >= scratch_.weights[token]; ++token) target -= scratch_.weights[token];
    return token;
  }

  // Calls visit(token, weight) for every token that is left, by ascending id, until it returns false.
  template <class Visit>
  void for_each_left(Visit visit) {
    const float lowest = cut_ == 0 ? -INFINITY : key_logit(cut_);
    for (int block = 0; block < num_scan_blocks(n_); ++block) {
      if (scratch_.block_max[block] < lowest) continue;
      const int end = std::min(n_, (block + 1) * kScanBlock);
      for (int32_t token = block * kScanBlock; token < end; ++token) {
        if (row_[token] < lowest || order_key(row_[token], token) < cut_) continue;
        const uint32_t weight = scratch_.weights[token];
        if (weight >= min_weight_ && !visit(token, weight)) return;
      }
    }
  }

  int32_t draw_from_rest() {
    uint64_t total = 0;
    for_each_left([&](int32_t, uint32_t weight) {
      total += weight;
      return true;
    });
    uint64_t target = draw_below(total, in_);
    int32_t drawn = -1;
    for_each_left([&](int32_t token, uint32_t weight) {
      drawn = token;
      if (target < weight) return false;
      target -= weight;
      return true;
    });
    return drawn;
  }

  const float* row_;  // [n_], scanned into scratch_.block_max
  int n_;
  float max_;
  float scale_;
  const SampleInput& in_;
  SampleScratch& scratch_;
  uint64_t total_ = 0;       // mass before top_p
  uint64_t cut_ = 0;         // the last key that is kept; 0: all are
  uint32_t min_weight_ = 0;  // min_p
};

// The logits after every stage that changes them, in scratch.row.
void change_logits(const SampleInput& in, SampleScratch& scratch) {
  std::copy_n(in.logits, in.vocab, scratch.row.begin());
  const std::span<float> row(scratch.row.data(), in.vocab);
  apply_logit_bias(row, *in.params);
  apply_penalties(row, *in.params, *in.state);
  apply_bad_words(row, *in.params, in.state->output());
  apply_allowed_tokens(row, *in.params, scratch.gathered);
  apply_min_tokens(row, *in.params, in.state->output_length());
  if (in.mask) apply_mask(row, in.mask);
}

}  // namespace

bool is_greedy(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature || params.top_p == 0.0f || params.top_k == 1;
}

SampleResult sample(const SampleInput& in, SampleScratch& scratch) {
  const RowKernels& kernels = row_kernels();
  const float* row = in.logits;
  RowScan scan = kernels.scan(row, in.vocab, scratch.block_max.data());
  if (!scan.finite || std::isinf(scan.max)) return {.status = SampleStatus::kNonFinite};
  if (in.mask || changes_logits(*in.params, *in.state)) {
    change_logits(in, scratch);
    row = scratch.row.data();
    scan = kernels.scan(row, in.vocab, scratch.block_max.data());
    if (!scan.finite) return {.status = SampleStatus::kNonFinite};
    if (std::isinf(scan.max)) return {.status = SampleStatus::kAllMasked};
  }
  if (is_greedy(*in.params)) return {.token = argmax(row, in.vocab, scan.max, scratch)};
  return {.token = Distribution(row, scan.max, in, scratch).draw()};
}

}  // namespace octavo
