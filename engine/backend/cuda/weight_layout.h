#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/weight_source.h"

namespace octavo::cuda {

// How matrices lie on the device. Plain data: read by host code and by kernels.
//
// Dense rows lie one after the other, padded with zeros to whole slabs; the number of rows is padded to whole tiles.
//
// Of a quantized matrix, 16 rows are a tile and 64 columns of a tile a slab: what a warp reads at once. Codes lie
// [tiles][slabs][code_bytes]. In a slab each lane has 32 codes, in the order in which it hands them to mma.m16n8k16:
// four steps of 16 columns, and for each step the eight codes of its part of operand A (see slab_order.h).
inline constexpr int kTileRows = 16;
inline constexpr int kSlab = 64;
inline constexpr int kChunks = 8;  // of a row's slabs: summed apart, then added up from left to right

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int slabs_of(int k) { return ceil_div(k, kSlab); }
constexpr int tiles_of(int n) { return ceil_div(n, kTileRows); }
// Chunk c of a row has slabs [chunk_begin(c), chunk_begin(c + 1)).
constexpr int chunk_begin(int chunk, int slabs) { return chunk * slabs / kChunks; }

// Planes of bits that make up a slab's codes, one after the other; a lane's bytes of a plane are contiguous.
enum class CodePlanes : uint8_t {
  kPairs,        // 2 bits
  kPairsBit,     // 2 bits, then the third
  kNibbles,      // 4 bits
  kNibblesBit,   // 4 bits, then the fifth
  kNibblesPair,  // 4 bits, then the fifth and sixth
  kTable,        // 4 bits: places in a table of 16 values
  kBytes,        // 8 bits
  kE4M3,         // 8 bits: a small float
};

// What a code is multiplied with. A record holds the scales of 16 rows; lane group g (rows g and g + 8 of the tile)
// finds its numbers together.
enum class ScaleKind : uint8_t {
  kF16,             // one slab: f16 scale[2 rows][2 groups of 32]
  kF16Min,          // then f16 min[2][2]
  kBF16,            // as kF16, bfloat16
  kF32,             // one slab: f32 scale[2][2]
  kF32Zero,         // then, of all lane groups, u8 zero[2][2]
  kWide,            // two slabs, which share it: f32 scale[2]
  kWideZero,        // then, of all lane groups, u8 zero[2]
  kSuper,           // four slabs: f16 super[2]; then for each slab i8 scale[2][2], 128 added
  kSuperMin,        // f16 super[2], f16 super_min[2]; then u8 scale[2][2], u8 min[2][2]
  kSuperHalves,     // as kSuper with groups of 16: i8 scale[2][4], 128 added
  kSuperHalvesMin,  // f16 super[2], f16 super_min[2]; then scale[2][4], in the high nibble min
};

struct WeightLayout {
  CodePlanes planes;
  ScaleKind scales;
  int offset;  // taken off every code (kTable: of the table's bytes)
};

constexpr bool is_dense(WeightFormat f) {
  return f == WeightFormat::kF32 || f == WeightFormat::kF16 || f == WeightFormat::kBF16;
}

constexpr WeightLayout weight_layout(WeightFormat f) {
  switch (f) {
    case WeightFormat::kQ4_0:
      return {CodePlanes::kNibbles, ScaleKind::kF16, 8};
    case WeightFormat::kQ4_1:
      return {CodePlanes::kNibbles, ScaleKind::kF16Min, 0};
    case WeightFormat::kQ5_0:
      return {CodePlanes::kNibblesBit, ScaleKind::kF16, 16};
    case WeightFormat::kQ5_1:
      return {CodePlanes::kNibblesBit, ScaleKind::kF16Min, 0};
    case WeightFormat::kQ8_0:
      return {CodePlanes::kBytes, ScaleKind::kF16, 128};
    case WeightFormat::kQ2_K:
      return {CodePlanes::kPairs, ScaleKind::kSuperHalvesMin, 0};
    case WeightFormat::kQ3_K:
      return {CodePlanes::kPairsBit, ScaleKind::kSuperHalves, 4};
    case WeightFormat::kQ4_K:
      return {CodePlanes::kNibbles, ScaleKind::kSuperMin, 0};
    case WeightFormat::kQ5_K:
      return {CodePlanes::kNibblesBit, ScaleKind::kSuperMin, 0};
    case WeightFormat::kQ6_K:
      return {CodePlanes::kNibblesPair, ScaleKind::kSuperHalves, 32};
    case WeightFormat::kIQ4_NL:
      return {CodePlanes::kTable, ScaleKind::kF16, 128};
    case WeightFormat::kIQ4_XS:
      return {CodePlanes::kTable, ScaleKind::kSuper, 128};
    case WeightFormat::kMXFP4:
      return {CodePlanes::kTable, ScaleKind::kBF16, 128};
    case WeightFormat::kInt4x32:
      return {CodePlanes::kNibbles, ScaleKind::kF32Zero, 0};
    case WeightFormat::kInt4x128:
      return {CodePlanes::kNibbles, ScaleKind::kWideZero, 0};
    case WeightFormat::kInt8x32:
      return {CodePlanes::kBytes, ScaleKind::kF32, 128};
    case WeightFormat::kInt8x128:
      return {CodePlanes::kBytes, ScaleKind::kWide, 128};
    case WeightFormat::kF8x32:
      return {CodePlanes::kE4M3, ScaleKind::kF32, 0};
    case WeightFormat::kF8x128:
      return {CodePlanes::kE4M3, ScaleKind::kWide, 0};
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      break;
  }
  return {};
}

constexpr int code_bytes(CodePlanes planes) {  // of a slab
  switch (planes) {
    case CodePlanes::kPairs:
      return 256;
    case CodePlanes::kPairsBit:
      return 384;
    case CodePlanes::kNibbles:
    case CodePlanes::kTable:
      return 512;
    case CodePlanes::kNibblesBit:
      return 640;
    case CodePlanes::kNibblesPair:
      return 768;
    case CodePlanes::kBytes:
    case CodePlanes::kE4M3:
      return 1024;
  }
  return 0;
}

struct ScaleRecord {
  int slabs;       // that share a record
  int bytes;       // of a record
  int head;        // bytes before the parts of single slabs
  int slab_bytes;  // of the part of one slab, 0: none
};

constexpr ScaleRecord scale_record(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kF16:
    case ScaleKind::kBF16:
      return {1, 64, 64, 0};
    case ScaleKind::kF16Min:
    case ScaleKind::kF32:
      return {1, 128, 128, 0};
    case ScaleKind::kF32Zero:
      return {1, 160, 160, 0};
    case ScaleKind::kWide:
      return {2, 64, 64, 0};
    case ScaleKind::kWideZero:
      return {2, 80, 80, 0};
    case ScaleKind::kSuper:
      return {4, 160, 32, 32};
    case ScaleKind::kSuperMin:
    case ScaleKind::kSuperHalvesMin:
      return {4, 320, 64, 64};
    case ScaleKind::kSuperHalves:
      return {4, 288, 32, 64};
  }
  return {};
}

constexpr bool has_min(ScaleKind kind) {
  return kind == ScaleKind::kF16Min || kind == ScaleKind::kSuperMin || kind == ScaleKind::kSuperHalvesMin;
}
constexpr bool has_zero(ScaleKind kind) { return kind == ScaleKind::kF32Zero || kind == ScaleKind::kWideZero; }
constexpr bool has_halves(ScaleKind kind) {  // scales of 16 columns
  return kind == ScaleKind::kSuperHalves || kind == ScaleKind::kSuperHalvesMin;
}

constexpr size_t codes_size(WeightFormat f, int n, int k) {
  return static_cast<size_t>(tiles_of(n)) * slabs_of(k) * code_bytes(weight_layout(f).planes);
}
constexpr int records_of(WeightFormat f, int k) {  // of a tile
  return ceil_div(slabs_of(k), scale_record(weight_layout(f).scales).slabs);
}
constexpr size_t scales_size(WeightFormat f, int n, int k) {
  return static_cast<size_t>(tiles_of(n)) * records_of(f, k) * scale_record(weight_layout(f).scales).bytes;
}
constexpr size_t dense_size(WeightFormat f, int n, int k) {
  return static_cast<size_t>(tiles_of(n)) * kTileRows * slabs_of(k) * kSlab * weight_format_info(f).block_bytes;
}

}  // namespace octavo::cuda
