#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cuda/launches.h"
#include "backend/cuda/slab_order.h"
#include "backend/cuda/weight_layout.h"
#include "ops/file_block.h"
#include "ops/quantize_row.h"
#include "tensor/float8.h"

namespace octavo::cuda {
namespace {

constexpr int kWindow = 256;  // columns that are taken apart at once: no block or record begins inside

// Codes and scales of the rows of a tile in a window. Behind the last block scales are zero.
struct Window {
  uint8_t codes[kTileRows][kWindow];
  FileBlock blocks[kTileRows][kWindow / 32];
};

bool has_e4m3_nan(const uint8_t* codes, int count) {
  return std::any_of(codes, codes + count, [](uint8_t code) { return is_e4m3_nan(code); });
}

void read_window(WeightFormat format, const std::byte* const* rows, int count, int first_column, int columns,
                 Window& w) {
  const auto info = weight_format_info(format);
  const CodePlanes planes = weight_layout(format).planes;
  for (int r = 0; r < count; ++r) {
    for (int begin = 0, b = 0; begin < columns; begin += info.block, ++b) {
      FileBlock& block = w.blocks[r][b];
      read_file_block(format, rows[r] + static_cast<size_t>((first_column + begin) / info.block) * info.block_bytes,
                      block);
      uint8_t* codes = w.codes[r] + begin;
      std::memcpy(codes, block.codes, info.block);
      if (planes == CodePlanes::kBytes) {  // signed
        for (int i = 0; i < info.block; ++i) codes[i] ^= 0x80;
      }
      // No half stands for NaN where codes are halves of another exponent: the scale of the block takes it over.
      if (planes == CodePlanes::kE4M3 && has_e4m3_nan(codes, info.block)) {
        block.wide_scale = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// A lane's words of the planes of a slab.
struct LaneWords {
  uint32_t low[8] = {};   // kPairs: 2, nibbles: 4, bytes: 8
  uint32_t high[2] = {};  // a bit: 1, a pair: 2
};

void add_code(CodePlanes planes, const CodePlace& at, uint32_t code, LaneWords& w) {
  const int in_pair = 4 * (at.step % 2) + at.reg, pair = at.step / 2;
  switch (planes) {
    case CodePlanes::kPairs:
    case CodePlanes::kPairsBit:
      w.low[pair] |= (code & 3) << (2 * in_pair + 16 * at.half);
      w.high[0] |= code >> 2 << (8 * pair + in_pair + 16 * at.half);
      return;
    case CodePlanes::kNibbles:
    case CodePlanes::kNibblesBit:
      w.low[at.step] |= (code & 15) << (4 * (at.reg + 4 * at.half));
      w.high[0] |= code >> 4 << (8 * pair + in_pair + 16 * at.half);
      return;
    case CodePlanes::kNibblesPair:
      w.low[at.step] |= (code & 15) << (4 * (at.reg + 4 * at.half));
      w.high[pair] |= code >> 4 << (2 * in_pair + 16 * at.half);
      return;
    case CodePlanes::kTable:
      w.low[at.step] |= code << (4 * (2 * at.reg + at.half));
      return;
    case CodePlanes::kBytes:
    case CodePlanes::kE4M3:
      w.low[2 * at.step + at.reg / 2] |= code << (8 * (2 * (at.reg % 2) + at.half));
      return;
  }
}

// codes: a slab of the window's
void put_slab(WeightFormat format, const Window& w, int column, std::byte* slab) {
  const WeightLayout layout = weight_layout(format);
  LaneWords lanes[32];
  for (int r = 0; r < kTileRows; ++r) {
    for (int c = 0; c < kSlab; ++c) {
      const CodePlace at = place_of(r, c, has_halves(layout.scales));
      add_code(layout.planes, at, w.codes[r][column + c], lanes[at.lane]);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const LaneWords& words = lanes[lane];
    switch (layout.planes) {
      case CodePlanes::kPairs:
      case CodePlanes::kPairsBit:
        std::memcpy(slab + 8 * lane, words.low, 8);
        if (layout.planes == CodePlanes::kPairsBit) std::memcpy(slab + 256 + 4 * lane, words.high, 4);
        break;
      case CodePlanes::kBytes:
      case CodePlanes::kE4M3:
        std::memcpy(slab + 16 * lane, words.low, 16);
        std::memcpy(slab + 512 + 16 * lane, words.low + 4, 16);
        break;
      default:
        std::memcpy(slab + 16 * lane, words.low, 16);
        if (layout.planes == CodePlanes::kNibblesBit) std::memcpy(slab + 512 + 4 * lane, words.high, 4);
        if (layout.planes == CodePlanes::kNibblesPair) std::memcpy(slab + 512 + 8 * lane, words.high, 8);
        break;
    }
  }
}

// The super-scales of a row and the small integers of its four slabs.
void put_super(ScaleKind kind, const FileBlock& block, int row, std::byte* record) {
  const ScaleRecord layout = scale_record(kind);
  const int group = row % 8, high = row / 8;
  put(record + layout.head / 8 * group + 2 * high, block.scale);
  if (has_min(kind)) put(record + 8 * group + 4 + 2 * high, block.min);
  for (int slab = 0; slab < 4; ++slab) {
    std::byte* part = record + layout.head + slab * layout.slab_bytes + layout.slab_bytes / 8 * group;
    const int count = has_halves(kind) ? 4 : 2;
    for (int i = 0; i < count; ++i) {
      const int g = count * slab + i;
      std::byte& to = part[count * high + i];
      if (kind == ScaleKind::kSuperHalvesMin) {
        to = static_cast<std::byte>(block.scales[g] | block.mins[g] << 4);
      } else if (kind == ScaleKind::kSuperMin) {
        to = static_cast<std::byte>(block.scales[g]);
        part[4 + count * high + i] = static_cast<std::byte>(block.mins[g]);
      } else {
        to = static_cast<std::byte>(block.scales[g] + 128);
      }
    }
  }
}

uint16_t mxfp4_scale(int exponent) {  // 2^(exponent - 128) as bfloat16
  return static_cast<uint16_t>(exponent < 2 ? 0x0020 << exponent : (exponent - 1) << 7);
}

// The scale of a row's 32 columns in a record of one slab; pair: which half of the slab.
void put_scale(ScaleKind kind, const FileBlock& block, int row, int pair, std::byte* record) {
  const int group = row % 8, high = row / 8, at = 2 * high + pair;
  switch (kind) {
    case ScaleKind::kF16:
      return put(record + 8 * group + 2 * at, block.scale);
    case ScaleKind::kBF16:
      return put(record + 8 * group + 2 * at, mxfp4_scale(block.exponent));
    case ScaleKind::kF16Min:
      put(record + 16 * group + 2 * at, block.scale);
      return put(record + 16 * group + 8 + 2 * at, block.min);
    case ScaleKind::kF32:
      return put(record + 16 * group + 4 * at, block.wide_scale);
    case ScaleKind::kF32Zero:
      put(record + 16 * group + 4 * at, block.wide_scale);
      return put(record + 128 + 4 * group + at, block.zero);
    default:
      return;
  }
}

void put_wide(ScaleKind kind, const FileBlock& block, int row, std::byte* record) {
  put(record + 8 * (row % 8) + 4 * (row / 8), block.wide_scale);
  if (kind == ScaleKind::kWideZero) put(record + 64 + 2 * (row % 8) + row / 8, block.zero);
}

void put_scales(WeightFormat format, const Window& w, int count, int columns, std::byte* records) {
  const ScaleKind kind = weight_layout(format).scales;
  const int bytes = scale_record(kind).bytes, block = weight_format_info(format).block;
  for (int r = 0; r < count; ++r) {
    for (int begin = 0, b = 0; begin < columns; begin += block, ++b) {
      if (block == 256) {
        put_super(kind, w.blocks[r][b], r, records);
      } else if (block == 128) {
        put_wide(kind, w.blocks[r][b], r, records + b * bytes);
      } else {
        put_scale(kind, w.blocks[r][b], r, b % 2, records + b / 2 * bytes);
      }
    }
  }
}

void repack_dense_tile(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* tile) {
  const size_t element = weight_format_info(format).block_bytes, stride = slabs_of(k) * kSlab * element;
  std::memset(tile, 0, stride * kTileRows);
  for (int r = 0; r < count; ++r) std::memcpy(tile + r * stride, rows[r], k * element);
}

void repack_rows(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* codes,
                 std::byte* scales) {
  if (is_dense(format)) return repack_dense_tile(format, rows, count, k, codes);
  const WeightLayout layout = weight_layout(format);
  const ScaleRecord record = scale_record(layout.scales);
  std::memset(scales, 0, scales_size(format, kTileRows, k));
  Window w;
  for (int first = 0; first < k; first += kWindow) {
    const int columns = std::min(kWindow, k - first);
    std::memset(w.codes, 0, sizeof w.codes);
    read_window(format, rows, count, first, columns, w);
    for (int column = 0; column < columns; column += kSlab) {
      put_slab(format, w, column, codes + static_cast<size_t>((first + column) / kSlab) * code_bytes(layout.planes));
    }
    put_scales(format, w, count, columns, scales + first / kSlab / record.slabs * record.bytes);
  }
}

}  // namespace

PackedSize packed_size(WeightFormat format, int n, int k) {
  if (is_dense(format)) return {dense_size(format, n, k), 0};
  return {codes_size(format, n, k), scales_size(format, n, k)};
}

void repack_tile(WeightFormat from, WeightFormat to, const std::byte* const* rows, int count, int k, int tile,
                 std::byte* codes, std::byte* scales) {
  codes += tile * packed_size(to, kTileRows, k).codes;
  scales += tile * packed_size(to, kTileRows, k).scales;
  if (from == to) return repack_rows(to, rows, count, k, codes, scales);
  const auto info = weight_format_info(to);
  const size_t row_bytes = static_cast<size_t>(k / info.block) * info.block_bytes;
  std::vector<std::byte> blocks(row_bytes * count);
  const std::byte* quantized[kTileRows];
  for (int r = 0; r < count; ++r) {
    quantized[r] = blocks.data() + r * row_bytes;
    plain_quantizer(from, to)(rows[r], k, blocks.data() + r * row_bytes);
  }
  repack_rows(to, quantized, count, k, codes, scales);
}

}  // namespace octavo::cuda
