#include "backend/cuda/emulator/warp_matrix.h"

#include "tensor/half.h"

namespace octavo::emulator {
namespace {

// As f16_to_f32, without branches, so that loops of it become vectors.
float f16_value(uint16_t h) {
  const uint32_t magnitude = uint32_t{h & 0x7fffu} << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;  // infinity or NaN
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | uint32_t{h & 0x8000u} << 16);
}

template <Element kElement>
float value(uint32_t pair, int high) {
  const auto bits = static_cast<uint16_t>(high ? pair >> 16 : pair);
  return kElement == Element::kF16 ? f16_value(bits) : bf16_to_f32(bits);
}

// Sums over k in ascending order. Fragments as PTX defines them: lane 4 g + t holds rows g and g + 8 of A and D and
// column g of B; pair p of its A is at k = 2 t + 8 (p / 2), in row g + 8 (p % 2).
template <Element kElement>
void multiply(Exchange* const* lanes, unsigned mask) {
  if (mask != kFullMask) Block::current().fail("mma needs all lanes of the warp");
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    Fragments f;
    std::memcpy(&f, lanes[lane]->operand, sizeof f);
    const int g = lane / 4, t = lane % 4;
    for (int e = 0; e < 2; ++e) {
      for (int p = 0; p < 4; ++p) a[g + 8 * (p % 2)][2 * t + e + 8 * (p / 2)] = value<kElement>(f.a[p], e);
      for (int p = 0; p < 2; ++p) b[2 * t + e + 8 * p][g] = value<kElement>(f.b[p], e);
      for (int h = 0; h < 2; ++h) d[g + 8 * h][2 * t + e] = f.d[2 * h + e];
    }
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int col = 0; col < 8; ++col) d[row][col] += a[row][k] * b[k][col];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const Accumulators result{{d[g][2 * t], d[g][2 * t + 1], d[g + 8][2 * t], d[g + 8][2 * t + 1]}};
    std::memcpy(lanes[lane]->result, &result, sizeof result);
  }
}

template <int kCount, bool kTransposed>
void load(Exchange* const* lanes, unsigned mask) {
  if (mask != kFullMask) Block::current().fail("ldmatrix needs all lanes of the warp");
  uint16_t m[kCount][8][8];
  for (int i = 0; i < kCount; ++i) {
    for (int row = 0; row < 8; ++row) {
      const void* from;
      std::memcpy(&from, lanes[8 * i + row]->operand, sizeof from);
      if (reinterpret_cast<uintptr_t>(from) % 16)
        Block::current().fail("ldmatrix reads a row that is not 16-byte aligned");
      std::memcpy(m[i][row], from, 16);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    Registers result{};
    for (int i = 0; i < kCount; ++i) {
      const uint32_t low = kTransposed ? m[i][2 * t][g] : m[i][g][2 * t];
      const uint32_t high = kTransposed ? m[i][2 * t + 1][g] : m[i][g][2 * t + 1];
      result.r[i] = low | high << 16;
    }
    std::memcpy(lanes[lane]->result, &result, sizeof result);
  }
}

}  // namespace

Accumulators mma_m16n8k16(const Fragments& fragments, Element element, Site site) {
  const Resolve resolve = element == Element::kF16 ? multiply<Element::kF16> : multiply<Element::kBF16>;
  return Block::current().collective<Accumulators>(kFullMask, fragments, resolve, site);
}

Registers load_matrices(const void* row, int count, bool transposed, Site site) {
  const Resolve resolve = count == 1   ? (transposed ? load<1, true> : load<1, false>)
                          : count == 2 ? (transposed ? load<2, true> : load<2, false>)
                                       : (transposed ? load<4, true> : load<4, false>);
  return Block::current().collective<Registers>(kFullMask, row, resolve, site);
}

}  // namespace octavo::emulator
