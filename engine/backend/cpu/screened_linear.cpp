#include "backend/cpu/screened_linear.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cpu/linear.h"
#include "backend/cpu/output_screen.h"
#include "tensor/half.h"

namespace octavo::cpu {
namespace {

constexpr int kTilePanels = 64;
constexpr double kUlp = 1.0 / (1 << 23);

double square(double x) { return x * x; }  // of no float too small to be counted

// Of groups of integers: half a step for each value, and what the division by its group's scale rounds.
template <class Group>
double group_rounding(const LinearInputs::Form& form, int token, int groups) {
  constexpr double kStep = 0.51;
  const auto* at = reinterpret_cast<const Group*>(form.token(token));
  double sum = 0.0;
  for (int g = 0; g < groups; ++g) sum += kGroup * square(kStep * at[g * form.slots].scale);
  return std::sqrt(sum);
}

// What the input of one row may have lost when it was rounded to what the kernels read, as a norm.
double rounding(const LinearInputs& inputs, Reads reads, int token, int columns) {
  const auto& form = inputs.form(reads);
  switch (reads) {
    case Reads::kF32:
      return 0.0;
    case Reads::kBF16: {
      const auto* at = reinterpret_cast<const uint16_t*>(form.token(token));
      double sum = 0.0;
      for (int i = 0; i < columns; ++i) sum += square(bf16_to_f32(at[i]));
      return std::sqrt(sum) / (1 << 8);
    }
    case Reads::kGroup8:
      return group_rounding<QuantizedGroup8>(form, token, columns / kGroup);
    case Reads::kGroup16:
      return group_rounding<QuantizedGroup16>(form, token, columns / kGroup);
  }
  return std::numeric_limits<double>::infinity();
}

// Of the coarse product's input, whose first group comes again at the end.
ScreenInput norms(const LinearInputs& inputs, int token, int columns) {
  const auto& form = inputs.form(Reads::kGroup8);
  const auto* groups = reinterpret_cast<const QuantizedGroup8*>(form.token(token));
  const int again = columns / kGroup - 1;
  double heavy = 0.0, light = 0.0;
  for (int g = 0; g < again; ++g) {
    const QuantizedGroup8& group = groups[g * form.slots];
    int32_t sum = 0;
    for (const int8_t q : group.q) sum += q * q;
    (g == 0 ? heavy : light) += square(group.scale) * sum;
  }
  const Outliers& outliers = inputs.outliers(token);
  for (int64_t i = 0; i < outliers.count; ++i) {
    const Outlier& x = outliers.entries[i];
    if (x.group < again) (x.group == 0 ? heavy : light) += square(x.value);
  }
  const double lost = rounding(inputs, Reads::kGroup8, token, columns) + kLeastNorm;
  heavy = std::sqrt(heavy) + lost;
  light = std::sqrt(light) + lost;
  const double sums = (heavy + light) * (2 * columns + 64) * kUlp;  // what the additions of both products round
  return {static_cast<float>(heavy), static_cast<float>(light), static_cast<float>(lost + sums)};
}

class Screening {
 public:
  Screening(CpuQueue& queue, const Kernels& kernels, const LinearParams& p)
      : queue_(queue),
        kernels_(kernels),
        p_(p),
        weight_(static_cast<const CpuPackedWeight&>(*p.weight)),
        screen_(static_cast<const CpuOutputScreen&>(*p.screen)),
        tiles_((screen_.num_panels() + kTilePanels - 1) / kTilePanels) {}

  void run() {
    multiply_coarse();
    find_greatest();
    const LinearInputs inputs(queue_, kernels_, p_);
    int best[kMaxTokens];
    for (int token = 0; token < p_.m; ++token) {
      best[token] = likeliest(token);
      if (best[token] >= 0) continue;
      screen_.note(screen_.num_panels());
      return multiply(queue_, kernels_, p_, inputs);  // nothing but NaN
    }
    for (int token = 0; token < p_.m; ++token) {
      double rounded = 0.0;
      for (const auto& s : weight_.sections()) {
        rounded = std::max(rounded, rounding(inputs, inputs.reads(s), token, weight_.columns()));
      }
      inputs_[token].error += static_cast<float>(rounded);
      multiply_rows(inputs, best[token], 1, 0);
      least_[token] = p_.y[token * p_.ldy + best[token]];
    }
    multiply_reaching(inputs);
  }

 private:
  static constexpr int kMaxTokens = kTokenSlots;

  void multiply_coarse() {
    LinearParams coarse = p_;
    coarse.weight = &screen_.coarse();
    coarse.next = nullptr;
    const LinearInputs inputs(queue_, kernels_, coarse);
    multiply(queue_, kernels_, coarse, inputs);
    for (int token = 0; token < p_.m; ++token) inputs_[token] = norms(inputs, token, screen_.columns());
  }

  // Of each tile, for each token.
  void find_greatest() {
    queue_.pool().run(tiles_, [this](int tile, int) {
      for (int token = 0; token < p_.m; ++token) {
        screen_.greatest()[tile * p_.m + token] =
            kernels_.screen.greatest(outputs(tile, token), panels(tile) * ScreenPanel::kRows);
      }
    });
  }

  // The row whose coarse output is the greatest; -1: none is a number.
  int likeliest(int token) const {
    const std::vector<float>& greatest = screen_.greatest();
    int best = 0;
    for (int tile = 1; tile < tiles_; ++tile) {
      if (greatest[tile * p_.m + token] > greatest[best * p_.m + token]) best = tile;
    }
    const float* y = outputs(best, token);
    const int rows = panels(best) * ScreenPanel::kRows;
    const int at = static_cast<int>(std::find(y, y + rows, greatest[best * p_.m + token]) - y);
    return at == rows ? -1 : best * kTilePanels * ScreenPanel::kRows + at;
  }

  void multiply_reaching(const LinearInputs& inputs) {
    const int known = screen_.num_panels() * ScreenPanel::kRows;
    std::atomic<int> left = 0;
    queue_.pool().run(
        tiles_,
        [&](int tile, int worker) {
          uint64_t reaching = 0;
          for (int token = 0; token < p_.m; ++token) {
            reaching |= kernels_.screen.reaching(outputs(tile, token), screen_.panels() + tile * kTilePanels,
                                                 panels(tile), inputs_[token], least_[token]);
          }
          left.fetch_add(std::popcount(reaching), std::memory_order_relaxed);
          for (; reaching != 0; reaching &= reaching - 1) {
            const int panel = tile * kTilePanels + std::countr_zero(reaching);
            multiply_rows(inputs, panel * ScreenPanel::kRows, ScreenPanel::kRows, worker);
          }
        },
        [&](int worker) { return next_weights(queue_.pool(), p_, worker); });
    if (known < weight_.n()) multiply_rows(inputs, known, weight_.n() - known, 0);
    screen_.note(left.load(std::memory_order_relaxed));
  }

  // Whole panels of the matrix that hold these rows.
  void multiply_rows(const LinearInputs& inputs, int first, int count, int worker) const {
    for (const auto& s : weight_.sections()) {
      const int begin = std::max(first - s.first_row, 0), end = std::min(first + count - s.first_row, s.rows);
      if (begin >= end) continue;
      const int row = begin / panel_rows(s.format) * panel_rows(s.format);
      kernels_.linear.tile(s.format)(inputs.tile(s, row, end - row, 0, p_.m, worker));
    }
  }

  int panels(int tile) const { return std::min(kTilePanels, screen_.num_panels() - tile * kTilePanels); }
  float* outputs(int tile, int token) const {
    return p_.y + token * p_.ldy + static_cast<int64_t>(tile) * kTilePanels * ScreenPanel::kRows;
  }

  CpuQueue& queue_;
  const Kernels& kernels_;
  const LinearParams& p_;
  const CpuPackedWeight& weight_;
  const CpuOutputScreen& screen_;
  const int tiles_;
  ScreenInput inputs_[kMaxTokens];
  float least_[kMaxTokens];
};

}  // namespace

void screened_linear(CpuQueue& queue, const Kernels& kernels, const LinearParams& p) {
  const auto& screen = static_cast<const CpuOutputScreen&>(*p.screen);
  if (p.m > screen.max_tokens() || !screen.pays()) return linear(queue, kernels, p);
  if (p.m > 0) Screening(queue, kernels, p).run();
}

}  // namespace octavo::cpu
