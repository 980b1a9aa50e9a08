#pragma once
#include <cstdint>

// The order of the codes within a slab of weight_layout.h, and what codes of a table stand for.
namespace octavo::cuda {

// Where a code of a slab stands. Two steps share 32 columns; lane group g has rows g and g + 8, lane t of it four
// columns of each step. Formats with scales of 16 columns have steps of 16 neighbours; the others have lanes of 8
// neighbours, so that a lane reads its activations of both steps at once. In the former the activations are put in that
// order.
struct CodePlace {
  int lane;  // 4 * g + t
  int step;  // 0 .. 3
  int reg;   // of operand A
  int half;  // of the register
};
constexpr CodePlace place_of(int row, int column, bool halves) {
  const int in_pair = column % 32;
  const int t = halves ? in_pair % 16 / 4 : in_pair / 8, step_of_pair = halves ? in_pair / 16 : in_pair / 4 % 2;
  return {row % 8 * 4 + t, column / 32 * 2 + step_of_pair, column % 4 / 2 * 2 + row / 8, column % 2};
}
// The place among its 32 of an activation, in the order in which formats with halves read them.
constexpr int halves_order(int column) { return column % 16 / 4 * 8 + column / 16 * 4 + column % 4; }

// Four of a table's 16 values, 128 added, in one word.
constexpr uint32_t table_word(bool mxfp4, int word) {
  constexpr int iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  constexpr int doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // by a scale of half the size
  uint32_t packed = 0;
  for (int i = 0; i < 4; ++i) {
    const int value = mxfp4 ? doubled[4 * word + i] : iq4[4 * word + i];
    packed |= static_cast<uint32_t>(value + 128) << (8 * i);
  }
  return packed;
}

}  // namespace octavo::cuda
