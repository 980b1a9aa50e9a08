#pragma once
#include "backend/cuda/kernels/slab_scales.cuh"
#include "backend/cuda/mma.h"
#include "backend/cuda/product_args.h"

// y = x * w^T on tensor cores: rows of w are operand A, tokens operand B. A row's slabs are cut into kChunks chunks by
// their number alone. A chunk is summed slab by slab from zero, and the chunks' sums are added from left to right: in
// both kernels, for every number of tokens.
namespace octavo::cuda {

// What a block computes: rows [first, first + count) of y.
struct TokenTile {
  ProductWeight weight;
  int first, count;
};

inline __device__ ProductWeight expert_weight(const DeviceExpert& expert, bool down) {
  const WeightView& matrix = down ? expert.down : expert.gate_up;
  return {matrix.codes, matrix.scales, down ? expert.down_bias : expert.gate_up_bias};
}

inline __device__ TokenTile token_tile(const ProductArgs& p, int tokens) {
  if (p.tiles) {
    const ExpertTile tile = p.tiles[blockIdx.y];
    if (tile.count == 0) return {};
    return {expert_weight(p.experts[tile.expert], p.down), tile.first, tile.count};
  }
  const int first = static_cast<int>(blockIdx.y) * tokens;
  return {p.weight, first, min(tokens, p.m - first)};
}

inline __device__ int x_row(const ProductArgs& p, const TokenTile& tile, int token) {
  const int row = tile.first + min(token, tile.count - 1);  // there is one in every place
  return p.x_rows ? p.x_rows[row] : row;
}

inline __device__ void store_output(const ProductArgs& p, const TokenTile& tile, int token, int row, float sum) {
  if (token >= tile.count || row >= p.n) return;
  if (p.x_scale) sum *= p.x_scale[x_row(p, tile, token)];
  if (tile.weight.bias) sum += tile.weight.bias[row];
  float* y = p.y + (tile.first + token) * p.ldy + row;
  *y = p.accumulate ? *y + sum : sum;
}

// One slab of a tile's weights.
template <WeightFormat kFormat>
struct Slab {
  static constexpr bool kDense = is_dense(kFormat);
  static constexpr bool kHalves = has_halves(weight_layout(kFormat).scales) && !kDense;
  static constexpr bool kMin = has_min(weight_layout(kFormat).scales) && !kDense;
  static constexpr int kSums = kHalves ? 2 : 1;  // of a pair
  using Scales = PairScales<kHalves>;

  SlabCodes<kFormat> codes;
  SlabScales<kFormat> scales;

  __device__ void load(const ProductWeight& weight, int tile, int slabs, int slab, int lane) {
    if constexpr (kDense) {
      const size_t row_bytes = static_cast<size_t>(slabs) * (2 * kSlab);
      codes.load(weight.codes + tile * kTileRows * row_bytes + slab * (2 * kSlab), row_bytes, lane);
    } else {
      codes.load(weight.codes + (static_cast<size_t>(tile) * slabs + slab) * SlabCodes<kFormat>::kBytes, lane);
      constexpr ScaleRecord record = SlabScales<kFormat>::kRecord;
      const int records = (slabs + record.slabs - 1) / record.slabs;
      scales.load(weight.scales + static_cast<size_t>(tile) * records * record.bytes, slab, lane);
    }
  }

  __device__ void pair(int pair, uint32_t (&a)[2][4], Scales& s) const {
    if constexpr (!kDense) scales.pair(pair, s);
    codes.fragments(pair, s.zero, a);
  }

  // What is multiplied with the minima, of a token's four sums of a slab.
  static __device__ void pair_sums(const float4& four, int pair, float (&sums)[kSums]) {
    const float first = pair ? four.z : four.x, second = pair ? four.w : four.y;
    if constexpr (kHalves) {
      sums[0] = first;
      sums[1] = second;
    } else {
      sums[0] = first + second;
    }
  }

  // acc[2 * (row / 8) + token % 2] += the pair's part. x: the lane's eight activations; sums: [token % 2][half]
  static __device__ void add(const uint32_t (&a)[2][4], const Scales& s, const uint4& x, const float (&sums)[2][kSums],
                             float (&acc)[4]) {
    const uint32_t b[2][2] = {{x.x, x.y}, {x.z, x.w}};
    if constexpr (kDense) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        if constexpr (kFormat == WeightFormat::kBF16) mma_bf16(acc, a[step], b[step]);
        if constexpr (kFormat == WeightFormat::kF16) mma_f16(acc, a[step], b[step]);
      }
    } else {
      float part[4] = {};
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        mma_f16(part, a[step], b[step]);
        if (!kHalves && step == 0) continue;
        const int half = kHalves ? step : 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[i] = fmaf(s.scale[half][i / 2], part[i], acc[i]);
          if constexpr (kMin) acc[i] = fmaf(s.min[half][i / 2], sums[i % 2][half], acc[i]);
          part[i] = 0.0f;
        }
      }
    }
  }
};

// For few tokens: a block has one tile of rows, each of its warps one chunk of it. Bound by the reading of the weights.
inline constexpr int kProductThreads = 32 * kChunks;

template <WeightFormat kFormat, int kTokenTiles>
__global__ void __launch_bounds__(kProductThreads) few_tokens_product(const ProductArgs p) {
  using W = Slab<kFormat>;
  constexpr int kTokens = 8 * kTokenTiles;
  constexpr int kAhead = sizeof(SlabCodes<kFormat>) > 32   ? 1
                         : sizeof(SlabCodes<kFormat>) > 24 ? 2
                                                           : 4;  // slabs read at once
  constexpr int kStride = kTileRows + 4;                         // lanes of a warp write to different banks
  __shared__ float sums_of_chunks[kChunks][kTokens][kStride];

  const int lane = threadIdx.x % 32, chunk = threadIdx.x / 32, group = lane / 4, t = lane % 4;
  const int tile = blockIdx.x;
  const TokenTile tokens = token_tile(p, kTokens);
  if (tokens.count <= 0) return;

  uint32_t x[kTokenTiles];  // where the lane's rows begin
  [[maybe_unused]] uint32_t x_sums[kTokenTiles][2];
#pragma unroll
  for (int i = 0; i < kTokenTiles; ++i) {
    x[i] = static_cast<uint32_t>(x_row(p, tokens, 8 * i + group)) * p.slabs * kSlab + 8 * t;
    if constexpr (W::kMin) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        x_sums[i][j] = static_cast<uint32_t>(x_row(p, tokens, 8 * i + 2 * t + j)) * p.slabs;
      }
    }
  }

  float acc[kTokenTiles][4] = {};
  const int end = chunk_begin(chunk + 1, p.slabs);
  for (int begin = chunk_begin(chunk, p.slabs); begin < end; begin += kAhead) {
    W slabs[kAhead];
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      if (begin + ahead < end) slabs[ahead].load(tokens.weight, tile, p.slabs, begin + ahead, lane);
    }
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int slab = begin + ahead;
      if (slab >= end) break;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        uint32_t a[2][4];
        typename W::Scales scales;
        slabs[ahead].pair(pair, a, scales);
#pragma unroll
        for (int i = 0; i < kTokenTiles; ++i) {
          float sums[2][W::kSums];
          if constexpr (W::kMin) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              W::pair_sums(__ldg(reinterpret_cast<const float4*>(p.x_sums) + (x_sums[i][j] + slab)), pair, sums[j]);
            }
          }
          W::add(a, scales, __ldg(reinterpret_cast<const uint4*>(p.x + (x[i] + slab * kSlab + 32 * pair))), sums,
                 acc[i]);
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < kTokenTiles; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums_of_chunks[chunk][8 * i + 2 * t + j % 2][group + j / 2 * 8] = acc[i][j];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTokens * kTileRows; i += kProductThreads) {
    const int token = i / kTileRows, row = i % kTileRows;
    float sum = sums_of_chunks[0][token][row];
#pragma unroll
    for (int c = 1; c < kChunks; ++c) sum += sums_of_chunks[c][token][row];
    store_output(p, tokens, token, tile * kTileRows + row, sum);
  }
}

// For many tokens: a block has 128 rows and 64 tokens, a warp 32 of each. Activations pass through two buffers in
// shared memory, weights go from memory to registers; sums of chunks done wait in shared memory, each lane's its own.
struct ManyTokens {
  static constexpr int kTokens = 64;
  static constexpr int kTiles = 8;       // of rows
  static constexpr int kWarpTiles = 2;   // of rows
  static constexpr int kWarpTokens = 4;  // eights of tokens
  static constexpr int kPieces = 8;      // of 16 bytes in a token's slab
  static constexpr int kCopies = kTokens * kPieces / kProductThreads;
  static constexpr int kOutputs = kWarpTiles * kWarpTokens * 4;  // of a lane

  static constexpr size_t x_bytes() { return 2 * kTokens * kSlab * sizeof(uint16_t); }
  static constexpr size_t totals_bytes() { return kOutputs * kProductThreads * sizeof(float); }
  static constexpr size_t sums_bytes() { return 2 * kTokens * 4 * sizeof(float); }
  template <WeightFormat kFormat>
  static constexpr size_t shared_bytes() {
    return x_bytes() + totals_bytes() + (Slab<kFormat>::kMin ? sums_bytes() : 0);
  }
  // Pieces change places in every other token, so that eight lanes of two tokens read different banks.
  static __device__ int place(int token, int piece) { return token * kPieces + (piece ^ (token & 1) << 2); }
};

template <WeightFormat kFormat>
__global__ void __launch_bounds__(kProductThreads, 2) many_tokens_product(const ProductArgs p) {
  using W = Slab<kFormat>;
  using M = ManyTokens;
  uint4* x_pieces = dynamic_shared<uint4>();  // [2][kTokens][kPieces]
  auto* totals = reinterpret_cast<float*>(x_pieces + M::x_bytes() / sizeof(uint4)) + threadIdx.x;
  [[maybe_unused]] auto* x_sums = x_pieces + (M::x_bytes() + M::totals_bytes()) / sizeof(uint4);  // [2][kTokens], four

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, t = lane % 4;
  const int first_tile = static_cast<int>(blockIdx.x) * M::kTiles + warp / 2 * M::kWarpTiles;
  const int first_token = warp % 2 * (8 * M::kWarpTokens);
  const int last_tile = (p.n + kTileRows - 1) / kTileRows - 1;
  const TokenTile tokens = token_tile(p, M::kTokens);
  if (tokens.count <= 0) return;

  // Each thread copies the same pieces of every slab.
  const uint16_t* from[M::kCopies];
#pragma unroll
  for (int i = 0; i < M::kCopies; ++i) {
    const int piece = threadIdx.x + i * kProductThreads;
    from[i] =
        p.x + static_cast<size_t>(x_row(p, tokens, piece / M::kPieces)) * p.slabs * kSlab + piece % M::kPieces * 8;
  }
  [[maybe_unused]] const float* sums_from = nullptr;
  if constexpr (W::kMin) {
    if (threadIdx.x < M::kTokens) {
      sums_from = p.x_sums + static_cast<size_t>(x_row(p, tokens, threadIdx.x)) * p.slabs * 4;
    }
  }
  const auto fetch = [&](int slab) {
    const int buffer = slab % 2 * M::kTokens;
#pragma unroll
    for (int i = 0; i < M::kCopies; ++i) {
      const int piece = threadIdx.x + i * kProductThreads;
      cp_async_16(x_pieces + M::place(buffer + piece / M::kPieces, piece % M::kPieces), from[i] + slab * kSlab);
    }
    if constexpr (W::kMin) {
      if (threadIdx.x < M::kTokens) {
        cp_async_16(x_sums + buffer + threadIdx.x, sums_from + slab * 4);
      }
    }
    cp_async_commit();
  };

  W next[M::kWarpTiles];
  const auto load = [&](int slab) {
#pragma unroll
    for (int r = 0; r < M::kWarpTiles; ++r) {
      next[r].load(tokens.weight, min(first_tile + r, last_tile), p.slabs, slab, lane);
    }
  };

  float acc[M::kWarpTiles][M::kWarpTokens][4] = {};
  bool first_chunk = true;
  int chunk = 0;
  while (chunk_begin(chunk + 1, p.slabs) == 0) ++chunk;
  fetch(0);
  load(0);
  for (int slab = 0; slab < p.slabs; ++slab) {
    cp_async_wait<0>();
    __syncthreads();  // the slab is there, and nobody reads the buffer of the one before it any more
    W weights[M::kWarpTiles];
#pragma unroll
    for (int r = 0; r < M::kWarpTiles; ++r) weights[r] = next[r];
    if (slab + 1 < p.slabs) {
      fetch(slab + 1);
      load(slab + 1);
    }
    const int buffer = slab % 2 * M::kTokens + first_token;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      uint32_t a[M::kWarpTiles][2][4];
      typename W::Scales scales[M::kWarpTiles];
#pragma unroll
      for (int r = 0; r < M::kWarpTiles; ++r) weights[r].pair(pair, a[r], scales[r]);
#pragma unroll
      for (int i = 0; i < M::kWarpTokens; ++i) {
        const uint4 x = x_pieces[M::place(buffer + 8 * i + group, 4 * pair + t)];
        float sums[2][W::kSums];
        if constexpr (W::kMin) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            W::pair_sums(reinterpret_cast<const float4*>(x_sums)[buffer + 8 * i + 2 * t + j], pair, sums[j]);
          }
        }
#pragma unroll
        for (int r = 0; r < M::kWarpTiles; ++r) W::add(a[r], scales[r], x, sums, acc[r][i]);
      }
    }
    if (slab + 1 < chunk_begin(chunk + 1, p.slabs)) continue;
#pragma unroll
    for (int i = 0; i < M::kOutputs; ++i) {
      float& part = acc[i / 16][i / 4 % 4][i % 4];
      float& total = totals[i * kProductThreads];
      total = first_chunk ? part : total + part;
      part = 0.0f;
    }
    first_chunk = false;
    while (chunk < kChunks && chunk_begin(chunk + 1, p.slabs) == slab + 1) ++chunk;
  }

#pragma unroll
  for (int i = 0; i < M::kOutputs; ++i) {
    const int row = (first_tile + i / 16) * kTileRows + group + i % 4 / 2 * 8;
    const int token = first_token + i / 4 % 4 * 8 + 2 * t + i % 2;
    store_output(p, tokens, token, row, totals[i * kProductThreads]);
  }
}

}  // namespace octavo::cuda
