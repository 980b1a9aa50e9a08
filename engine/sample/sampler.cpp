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
    narrow();
    return everything_left() ? draw_from_all() : draw_from_rest();
  }

  void list(std::vector<TokenWeight>& out) {
    narrow();
    const int count = collect_left().count;
    for (int i = 0; i < count; ++i) {
      const int32_t token = key_token(scratch_.keys[i]);
      if (scratch_.weights[token] > 0) out.push_back({token, scratch_.weights[token]});
    }
  }

 private:
  static constexpr int kNoCandidates = -1;

  struct Left {
    int count = 0;
    uint64_t mass = 0;
  };

  // Weighs the tokens and finds what the filters leave.
  void narrow() {
    const SamplingParams& p = *in_.params;
    const int candidates = p.top_k > 1 && p.top_k < n_ ? keep_top_k(p.top_k) : weigh_all();
    if (p.top_p < 1.0f) keep_top_p(p.top_p, candidates);
    if (p.min_p > 0.0f) min_weight_ = static_cast<uint32_t>(std::ceil(p.min_p * kWeightOne));
  }

  bool everything_left() const { return cut_ == 0 && min_weight_ == 0; }

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

  // The smallest logit that can be left; min_p's bound is rounded down, since its weights decide.
  float lowest_left() const {
    float lowest = cut_ == 0 ? -INFINITY : key_logit(cut_);
    const SamplingParams& p = *in_.params;
    if (p.min_p > 0.0f) lowest = std::max(lowest, max_ + (std::log(p.min_p) - 0.001f) / scale_);
    return lowest;
  }

  // Lists what is left in scratch_.keys, by ascending id.
  Left collect_left() {
    const int count = collect_at_least(row_, n_, lowest_left(), scratch_);
    uint64_t* keys = scratch_.keys.data();
    Left left;
    for (int i = 0; i < count; ++i) {
      const uint64_t key = keys[i];
      const uint32_t weight = scratch_.weights[key_token(key)];
      const bool keep = key >= cut_ && weight >= min_weight_;
      keys[left.count] = key;
      left.count += keep;
      left.mass += keep ? weight : 0;
    }
    return left;
  }

  int32_t draw_from_rest() {
    uint64_t target = draw_below(collect_left().mass, in_);
    const uint64_t* key = scratch_.keys.data();
    for (; target >= scratch_.weights[key_token(*key)]; ++key) target -= scratch_.weights[key_token(*key)];
    return key_token(*key);
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

struct Prepared {
  SampleStatus status = SampleStatus::kOk;
  const float* logits = nullptr;  // after every stage that changes them; scanned into scratch.block_max
  float max = 0.0f;
};

Prepared prepare(const SampleInput& in, SampleScratch& scratch) {
  const RowKernels& kernels = row_kernels();
  const RowScan raw = kernels.scan(in.logits, in.vocab, scratch.block_max.data());
  if (!raw.finite || std::isinf(raw.max)) return {.status = SampleStatus::kNonFinite};
  if (!in.mask && !changes_logits(*in.params, *in.state)) return {.logits = in.logits, .max = raw.max};

  change_logits(in, scratch);
  const float* row = scratch.row.data();
  const RowScan scan = kernels.scan(row, in.vocab, scratch.block_max.data());
  if (!scan.finite) return {.status = SampleStatus::kNonFinite};
  if (std::isinf(scan.max)) return {.status = SampleStatus::kAllMasked};
  return {.logits = row, .max = scan.max};
}

}  // namespace

bool is_greedy(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature || params.top_p == 0.0f || params.top_k == 1;
}

SampleResult sample(const SampleInput& in, SampleScratch& scratch) {
  const Prepared row = prepare(in, scratch);
  if (row.status != SampleStatus::kOk) return {.status = row.status};
  if (is_greedy(*in.params)) return {.token = argmax(row.logits, in.vocab, row.max, scratch)};
  return {.token = Distribution(row.logits, row.max, in, scratch).draw()};
}

SampleStatus distribution(const SampleInput& in, SampleScratch& scratch, std::vector<TokenWeight>& out) {
  out.clear();
  const Prepared row = prepare(in, scratch);
  if (row.status != SampleStatus::kOk) return row.status;
  if (is_greedy(*in.params)) {
    out.push_back({argmax(row.logits, in.vocab, row.max, scratch), static_cast<uint32_t>(kWeightOne)});
  } else {
    Distribution(row.logits, row.max, in, scratch).list(out);
  }
  return SampleStatus::kOk;
}

}  // namespace octavo
