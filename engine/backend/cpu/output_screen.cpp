#include "backend/cpu/output_screen.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tensor/half.h"

namespace octavo::cpu {
namespace {

constexpr int kRows = ScreenPanel::kRows;
static_assert(kRows == kGroupRows);
constexpr WeightFormat kCoarse = WeightFormat::kQ4_0;
constexpr int kBlockBytes = weight_format_info(kCoarse).block_bytes;
constexpr double kLeastGain = 1.5;      // times the copy's bytes
constexpr int kSampledRows = 2048;      // for the order of the columns
constexpr float kSlack = 1.0f + 1e-4f;  // sums of a row's squares are rounded
constexpr float kMostLeft = 0.35f;      // of the panels, to multiply after the screen, on the average
constexpr float kWeightOfLatest = 1.0f / 16;
constexpr int kPause = 64;  // products

using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));

// n: a multiple of kGroup
float norm(const float* x, int n) {
  float sums[kGroup] = {};
  for (int i = 0; i < n; i += kGroup) {
    for (int j = 0; j < kGroup; ++j) sums[j] += x[i + j] * x[i + j];
  }
  return std::sqrt(std::accumulate(sums, sums + kGroup, 0.0f));
}

// The value of a group that is farthest from 0; NaN apart.
float farthest(const float* x) {
  constexpr int kLanes = 8;
  float high[kLanes] = {}, low[kLanes] = {};
  for (int i = 0; i < kGroup; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
      low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
    }
  }
  const float most = *std::max_element(high, high + kLanes), least = *std::min_element(low, low + kLanes);
  return most > -least ? most : least;
}

// The next bf16 that is not smaller; of NaN infinity.
uint16_t round_up(float norm) {
  norm = norm * kSlack + kLeastNorm;
  if (!(norm < std::numeric_limits<float>::infinity())) return 0x7f80;
  uint32_t bits;
  std::memcpy(&bits, &norm, sizeof bits);
  return static_cast<uint16_t>((bits + 0xffff) >> 16);
}

// A group as GGUF's q4_0; x becomes what that rounds away.
void round_off(float* x, std::byte* block) {
  const uint16_t half = f32_to_f16(farthest(x) / -8.0f);
  const float scale = f16_to_f32(half), inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  std::memcpy(block, &half, sizeof half);
  int32_t codes[kGroup];
  for (int i = 0; i < kGroup; i += 8) {
    F8 value;
    std::memcpy(&value, x + i, sizeof value);
    F8 code = value * inverse + 8.5f;
    code = code > 0.0f ? code : F8{};  // of NaN 0
    code = code < 15.0f ? code : F8{} + 15.0f;
    const I8 integer = __builtin_convertvector(code, I8);
    value -= scale * __builtin_convertvector(integer - 8, F8);
    std::memcpy(codes + i, &integer, sizeof integer);
    std::memcpy(x + i, &value, sizeof value);
  }
  for (int i = 0; i < kGroup / 2; ++i) {
    block[sizeof half + i] = static_cast<std::byte>(codes[i] | codes[i + kGroup / 2] << 4);
  }
}

// Features by falling magnitude of their columns, then the first group's again.
std::vector<int32_t> column_order(const PackedWeight& weight) {
  const int k = weight.k(), stride = std::max(1, weight.n() / kSampledRows);
  std::vector<float> row(k);
  std::vector<double> energy(k);
  for (int r = 0; r < weight.n(); r += stride) {
    weight.dequantize_row(r, row.data());
    for (int i = 0; i < k; ++i) energy[i] += std::isfinite(row[i]) ? double{row[i]} * row[i] : 0.0;
  }
  std::vector<int32_t> order(k);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return energy[a] > energy[b]; });
  order.resize(k + kGroup);
  std::copy_n(order.begin(), kGroup, order.begin() + k);
  return order;
}

// A worker's room for the rows of a panel.
class PanelMaker {
 public:
  PanelMaker(const PackedWeight& weight, const CpuPackedWeight& coarse)
      : weight_(weight),
        coarse_(coarse),
        row_(weight.k()),
        ordered_(coarse.columns()),
        blocks_(static_cast<size_t>(kRows) * coarse.columns() / kGroup * kBlockBytes) {}

  void make(int panel, ScreenPanel* norms) {
    const int first = panel * kRows, count = std::min(kRows, weight_.n() - first);
    const size_t row_bytes = blocks_.size() / kRows;
    const std::byte* rows[kRows];
    for (int r = 0; r < count; ++r) {
      std::byte* to = blocks_.data() + r * row_bytes;
      make_row(first + r, to, r, norms);
      rows[r] = to;
    }
    pack_panel(kCoarse, rows, count, coarse_.columns(), coarse_.panel(coarse_.sections()[0], first));
  }

 private:
  void make_row(int row, std::byte* blocks, int place, ScreenPanel* norms) {
    const int k = weight_.k();
    weight_.dequantize_row(row, row_.data());
    float* x = ordered_.data();
    for (int i = 0; i < k; ++i) x[i] = row_[coarse_.input_order()[i]];
    const float size = norm(x, k);
    for (int i = 0; i < k; i += kGroup, blocks += kBlockBytes) round_off(x + i, blocks);
    const float error = norm(x, k);
    round_off(x, blocks);
    if (norms == nullptr) return;
    norms->heavy[place] = round_up(norm(x, kGroup));
    norms->light[place] = round_up(norm(x + kGroup, k - kGroup));
    norms->whole[place] = round_up(size + 2.0f * error);  // the copy, with both of its first groups
  }

  const PackedWeight& weight_;
  const CpuPackedWeight& coarse_;
  std::vector<float> row_, ordered_;
  std::vector<std::byte> blocks_;
};

}  // namespace

CpuOutputScreen::CpuOutputScreen(std::unique_ptr<CpuPackedWeight> coarse, std::vector<ScreenPanel> panels)
    : coarse_(std::move(coarse)), panels_(std::move(panels)), greatest_(panels_.size() * kTokenSlots) {}

void CpuOutputScreen::note(int panels_left) const {
  share_left_ += kWeightOfLatest * (static_cast<float>(panels_left) / static_cast<float>(num_panels()) - share_left_);
  if (share_left_ > kMostLeft) pause_ = kPause;
}

std::unique_ptr<OutputScreen> make_screen(CpuQueue& queue, HugePages& memory, const PackedWeight& weight) {
  const int n = weight.n(), k = weight.k();
  if (k % kGroup != 0 || k < 2 * kGroup || n < kRows) return nullptr;
  if (static_cast<const CpuPackedWeight&>(weight).sections().size() != 1) return nullptr;
  const size_t panel = panel_bytes(kCoarse, k + kGroup);
  const size_t bytes = static_cast<size_t>((n + kRows - 1) / kRows) * panel;
  if (static_cast<double>(weight.bytes()) < kLeastGain * static_cast<double>(bytes)) return nullptr;

  std::vector<CpuPackedWeight::Section> section{{kCoarse, 0, n, 0, panel}};
  auto coarse =
      std::make_unique<CpuPackedWeight>(n, k, std::move(section), memory.take(bytes), bytes, column_order(weight));
  std::vector<ScreenPanel> panels(static_cast<size_t>(n / kRows));
  std::vector<PanelMaker> makers;
  for (int i = 0; i < queue.threads(); ++i) makers.emplace_back(weight, *coarse);
  queue.pool().run((n + kRows - 1) / kRows, [&](int i, int worker) {
    makers[worker].make(i, i < static_cast<int>(panels.size()) ? &panels[i] : nullptr);
  });
  return std::make_unique<CpuOutputScreen>(std::move(coarse), std::move(panels));
}

}  // namespace octavo::cpu
