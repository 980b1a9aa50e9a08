#include <algorithm>

#include "backend/cuda/attention_pieces.h"
#include "backend/cuda/kernels/attention_combine.cuh"
#include "backend/cuda/kernels/attention_tile.cuh"
#include "backend/cuda/launches.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

// Rows that may be cut whatever their length, as far as memory for states goes.
constexpr int kCutTokens = 16;
constexpr int kReservedShared = 1024;  // of each block, by the system
constexpr size_t kMaxStateBytes = size_t{256} << 20;

size_t state_bytes(int v_dim) { return sizeof(float) * static_cast<size_t>(v_dim + kStatePad); }
int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

[[noreturn]] void refuse(const char* name, const std::string& message) {
  throw Error(ErrorCode::kUnsupported, name, message);
}

void check(const AttentionParams& p) {
  if (p.k_dim < 16 || p.k_dim % 16 || p.k_dim > kMaxHeadDim)
    refuse("k_dim",
           cat("attention on CUDA takes a k_dim that is a multiple of 16 up to ", kMaxHeadDim, ", not ", p.k_dim));
  if (p.v_dim < 16 || p.v_dim % 16 || p.v_dim > kMaxHeadDim)
    refuse("v_dim",
           cat("attention on CUDA takes a v_dim that is a multiple of 16 up to ", kMaxHeadDim, ", not ", p.v_dim));
  const int size = p.cache.block_size;
  if (size != 8 && size != 16 && size != 32)
    refuse("block_size", cat("attention on CUDA takes blocks of 8, 16 or 32 slots, not ", size));
  if (p.kv_heads <= 0 || p.heads % p.kv_heads)
    refuse("heads", cat("heads must be a multiple of kv_heads, got ", p.heads, " and ", p.kv_heads));
  const auto aligned = [](const void* pointer, int64_t stride) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride % 4 == 0;
  };
  if (!aligned(p.q, p.ldq)) refuse("q", "attention on CUDA reads rows of q that begin at multiples of 16 bytes");
  if (!aligned(p.out, p.ldo)) refuse("out", "attention on CUDA writes rows of out that begin at multiples of 16 bytes");
}

// How many tiles of 16 queries, 1, 2 or 4, a block takes, and whether keys and values share a buffer.
struct BlockShape {
  int tiles;
  bool single_buffer;
  AttentionLayout layout;
};

template <class Cache>
BlockShape block_shape(const AttentionParams& p, int64_t queries, const DeviceProperties& device) {
  const int tiles = queries <= kTileRows ? 1 : p.v_dim <= kMaxHeadDim / 2 ? 4 : 2;
  for (const bool single : {false, true}) {
    const AttentionLayout layout =
        attention_layout(p.k_dim, p.v_dim, Cache::kBytes, Cache::kScaled, kTileRows * tiles, single);
    if (layout.bytes <= device.shared_bytes) return {tiles, single, layout};
  }
  refuse("head_dim", cat("attention over heads of ", p.k_dim, " and ", p.v_dim, " needs more shared memory than the ",
                         device.shared_bytes, " bytes of this device"));
}

template <class Cache, int kTiles>
auto kernel_for(int v_dim) {
  constexpr int kPerPair = 16 * kAttentionWarps;
  if constexpr (kTiles == 4) {
    return v_dim <= kPerPair ? attention_tiles<Cache, 4, 1> : attention_tiles<Cache, 4, 2>;
  } else if constexpr (kTiles == 2) {
    return attention_tiles<Cache, 2, 4>;
  } else {
    return v_dim <= kPerPair       ? attention_tiles<Cache, 1, 1>
           : v_dim <= 2 * kPerPair ? attention_tiles<Cache, 1, 2>
                                   : attention_tiles<Cache, 1, 4>;
  }
}

template <class Cache>
void launch_tiles(const Launch& launch_on, const AttentionParams& p, AttentionSchedule s, const BlockShape& shape,
                  int tiles, int pieces) {
  s.single_buffer = shape.single_buffer;
  s.layout = shape.layout;
  const auto kernel = shape.tiles == 4   ? kernel_for<Cache, 4>(p.v_dim)
                      : shape.tiles == 2 ? kernel_for<Cache, 2>(p.v_dim)
                                         : kernel_for<Cache, 1>(p.v_dim);
  launch(kernel, dim3(tiles, p.kv_heads, pieces), kAttentionThreads, shape.layout.bytes, launch_on.stream, p, s);
}

// Tiles that cover `tokens` tokens in at most `runs` runs, each of which begins a tile.
int tile_bound(const AttentionParams& p, int64_t tokens, int64_t runs, int tiles) {
  return ceil_div(tokens * (p.heads / p.kv_heads), kTileRows * tiles) + static_cast<int>(runs);
}

template <class Cache>
void attend(const Launch& on, const AttentionParams& p) {
  const AttentionExtent& extent = p.extent;
  const int64_t per_kv_head = p.heads / p.kv_heads;
  const int64_t queries = static_cast<int64_t>(extent.num_tokens) * p.heads;
  const int64_t states_there =
      static_cast<int64_t>(on.workspace_bytes / state_bytes(p.v_dim)) / std::max<int64_t>(queries, 1);
  const auto choose_piece = [&](const BlockShape& shape, int tiles, int64_t block_queries, int partitions) {
    const int fitting = std::clamp(on.device->shared_bytes / (shape.layout.bytes + kReservedShared), 1,
                                   attention_residency(shape.tiles));
    const double states = 2.0 * static_cast<double>(std::min<int64_t>(block_queries, kTileRows * shape.tiles)) *
                          static_cast<double>(state_bytes(p.v_dim));
    const double read = static_cast<double>(kAttentionPartition) * (p.k_dim + p.v_dim) * Cache::kBytes;
    return partitions_per_block({partitions, static_cast<int64_t>(tiles) * p.kv_heads,
                                 static_cast<int64_t>(fitting) * on.device->multiprocessors, states / read});
  };

  const BlockShape row_shape = block_shape<Cache>(p, extent.longest_row * per_kv_head, *on.device);
  const bool one_each = extent.longest_row * per_kv_head <= kTileRows * row_shape.tiles;
  const int row_tiles = one_each ? p.num_rows : tile_bound(p, extent.num_tokens, p.num_rows, row_shape.tiles);
  const int window_partitions = p.window > 0 ? ceil_div(int64_t{p.window} + extent.longest_row, kAttentionPartition) + 1
                                             : ceil_div(extent.longest_context, kAttentionPartition);
  const int partitions =
      std::max(1, std::min(window_partitions, ceil_div(extent.longest_context, kAttentionPartition)));

  AttentionSchedule s;
  s.state = reinterpret_cast<float*>(on.workspace);
  s.piece = choose_piece(row_shape, row_tiles, extent.longest_row * per_kv_head, partitions);
  const auto count_own = [&] { return s.piece < partitions ? count_states(partitions, s.piece) : 0; };
  if (count_own() > states_there) s.piece = partitions;
  s.own_states = count_own();

  // Without memory for its states a prefix is read by each row.
  BlockShape group_shape{};
  int group_tiles = 0;
  if (p.num_prefix_groups > 0 && extent.longest_prefix > 0) {
    group_shape = block_shape<Cache>(p, extent.largest_group * per_kv_head, *on.device);
    group_tiles = tile_bound(p, extent.num_tokens, p.num_prefix_groups, group_shape.tiles);
    const int64_t left = states_there - s.own_states;
    s.prefix_piece = choose_piece(group_shape, group_tiles, extent.largest_group * per_kv_head, extent.longest_prefix);
    if (count_states(extent.longest_prefix, s.prefix_piece) > left)
      s.prefix_piece = left > 0 ? extent.longest_prefix : 0;
  }
  s.states = s.own_states + (s.prefix_piece ? count_states(extent.longest_prefix, s.prefix_piece) : 0);

  if (s.prefix_piece) {
    AttentionSchedule groups = s;
    groups.groups = true;
    groups.piece = s.prefix_piece;
    launch_tiles<Cache>(on, p, groups, group_shape, group_tiles, ceil_div(extent.longest_prefix, s.prefix_piece));
  }
  launch_tiles<Cache>(on, p, s, row_shape, row_tiles, ceil_div(partitions, s.piece));
  if (s.own_states) {
    const int warps = p.heads * ceil_div(p.v_dim, kCombineColumns);
    launch(combine_attention, dim3(extent.num_tokens, ceil_div(warps, kAttentionWarps)), kAttentionThreads, 0,
           on.stream, p, s);
  }
}

}  // namespace

size_t attention_workspace(const WorkspaceLimits& limits, const DeviceProperties&) {
  const auto tokens = static_cast<size_t>(limits.max_tokens);
  const size_t partitions = limits.max_positions / kAttentionPartition + 1;
  // One state of a prefix for every query, and all partitions of a few queries.
  const size_t states = tokens + std::min<size_t>(tokens, kCutTokens) * partitions;
  return std::min(kMaxStateBytes, states * limits.max_heads * state_bytes(limits.max_head_dim));
}

void attention(const Launch& on, const AttentionParams& p) {
  check(p);
  if (p.num_rows == 0 || p.extent.num_tokens == 0) return;
  switch (p.cache.dtype) {
    case DType::kF16:
      return attend<F16Cache>(on, p);
    case DType::kBF16:
      return attend<Bf16Cache>(on, p);
    case DType::kI8:
      return attend<Int8Cache>(on, p);
    case DType::kF8E4M3:
      return attend<F8Cache>(on, p);
    default:
      refuse("kv_cache_dtype", cat("attention on CUDA reads f16, bf16, int8 or fp8, not ", dtype_name(p.cache.dtype)));
  }
}

}  // namespace octavo::cuda
