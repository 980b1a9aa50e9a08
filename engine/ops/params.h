#pragma once
#include <cstdint>

#include "ops/kv_group.h"
#include "ops/output_screen.h"
#include "ops/packed_weight.h"

namespace octavo {

// Parameters of the ops, plain data with the shape of every pointer in a comment. All activations are f32. All pointers
// are device pointers, PackedWeight apart; what a launch must know without reading them stands beside them.
// "tokens" is the flattened batch of all rows of a step.

struct EmbedParams {
  const PackedWeight* table = nullptr;  // [vocab, hidden]
  const int32_t* ids = nullptr;         // [num_tokens]
  int num_tokens = 0;
  float scale = 1.0f;
  float* out = nullptr;  // [num_tokens, hidden]
};

struct RmsNormParams {
  const float* x = nullptr;  // [rows, dim], row stride ldx
  int64_t ldx = 0;
  const float* weight = nullptr;  // [dim]
  float eps = 1e-5f;
  int rows = 0;
  int dim = 0;
  float* out = nullptr;  // [rows, dim], row stride ldo
  int64_t ldo = 0;
};

// What happens to a row of x while linear() reads it. In the last three x is [m, 2k]: g = x[:, :k], u = x[:, k:].
enum class Prologue : uint8_t {
  kNone,
  kRmsNorm,         // x * rsqrt(mean(x^2) + eps) * norm_weight
  kSiluMul,         // silu(g) * u
  kGeluTanhMul,     // gelu(g) * u, gelu by its tanh approximation
  kClampedSiluMul,  // g * sigmoid(1.702 g) * (u + 1), g at most 7 and u within [-7, 7]
};

struct LinearParams {
  const PackedWeight* weight = nullptr;  // [n, k]
  const float* x = nullptr;              // [m, k] or [m, 2k], row stride ldx
  int64_t ldx = 0;
  int m = 0;
  Prologue prologue = Prologue::kNone;
  const float* norm_weight = nullptr;  // [k], kRmsNorm
  float eps = 1e-5f;
  const float* bias = nullptr;  // [n] or null
  bool accumulate = false;      // y += product (the residual stream) instead of y = product
  float* y = nullptr;           // [m, n], row stride ldy
  int64_t ldy = 0;
  const PackedWeight* next = nullptr;  // what is likely multiplied next: the backend may fetch it meanwhile
  // Of the weight. Not null: only the greatest outputs of each row of y are read, all that are equally great; in the
  // place of any other the backend may leave something else that is smaller. With no bias, and not accumulated.
  const OutputScreen* screen = nullptr;
};

// Normalizes and rotates q and k in place (halves layout: dimension i pairs with i + rotary_dim / 2) and writes k and v
// to the cache.
struct RopeWriteParams {
  float* q = nullptr;  // [num_tokens, heads, k_dim], token stride ldq
  int64_t ldq = 0;
  float* k = nullptr;  // [num_tokens, kv_heads, k_dim], token stride ldk
  int64_t ldk = 0;
  const float* v = nullptr;  // [num_tokens, kv_heads, v_dim], token stride ldv
  int64_t ldv = 0;
  const float* rope =
      nullptr;  // [max_positions, rotary_dim]: cos [rotary_dim / 2] then sin [rotary_dim / 2]; null: no rotation
  const int32_t* positions = nullptr;  // [num_tokens]
  const int32_t* slots = nullptr;      // [num_tokens], -1: no write
  int num_tokens = 0;
  int heads = 0;
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  int rotary_dim = 0;
  // RMSNorm before the rotation, or null. Each head by itself with weights [k_dim], or all heads of a token together
  // with weights [heads, k_dim] and [kv_heads, k_dim].
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  bool norm_heads_together = false;
  float norm_eps = 1e-5f;
  KvLayer cache;
};

// A run of consecutive tokens of one sequence.
struct AttentionRow {
  int32_t first_token = 0;  // index into the batch
  int32_t n_tokens = 0;
  int32_t first_pos = 0;                 // position of its first token
  const int32_t* block_table = nullptr;  // [(first_pos + n_tokens + block_size - 1) / block_size]
};

struct AttentionPrefixGroup {
  const int32_t* rows = nullptr;  // [num_rows] indices of rows with the same leading blocks
  int32_t num_rows = 0;
  int32_t partitions = 0;  // leading partitions of kAttentionPartition positions that all of them see whole
};

// Every backend cuts the keys at the same absolute positions: the reduction order is part of the result.
inline constexpr int kAttentionPartition = 128;

// How large the rows of an attention are. Upper bounds will do.
struct AttentionExtent {
  int num_tokens = 0;       // of all rows
  int longest_row = 0;      // tokens
  int longest_context = 0;  // positions, own tokens included
  int largest_group = 0;    // tokens of all rows of a prefix group
  int longest_prefix = 0;   // partitions of a prefix group
};

// Causal attention of every token over its sequence's cache up to and including its own position.
struct AttentionParams {
  const float* q = nullptr;  // [num_tokens, heads, k_dim], token stride ldq
  int64_t ldq = 0;
  float* out = nullptr;  // [num_tokens, heads, v_dim], token stride ldo
  int64_t ldo = 0;
  const AttentionRow* rows = nullptr;  // [num_rows]
  int num_rows = 0;
  const AttentionPrefixGroup* prefix_groups = nullptr;
  int num_prefix_groups = 0;
  AttentionExtent extent;
  int heads = 0;
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  float scale = 0.0f;
  int window = 0;                // 0: all positions; else only the last `window` positions, own included
  float softcap = 0.0f;          // 0: off; else softcap * tanh(score / softcap)
  const float* sinks = nullptr;  // [heads] or null
  KvLayer cache;
};

// x += scale * y, or scale * rms_norm(y): what a sublayer adds to the residual stream. y is overwritten.
struct ResidualAddParams {
  float* x = nullptr;  // [rows, dim], row stride ldx
  int64_t ldx = 0;
  float* y = nullptr;  // [rows, dim], row stride ldy
  int64_t ldy = 0;
  const float* norm_weight = nullptr;  // [dim], or null: no norm
  float eps = 1e-5f;
  float scale = 1.0f;
  int rows = 0;
  int dim = 0;
};

// x = softcap * tanh(scale * x / softcap) in place; softcap 0: x = scale * x.
struct ScaleLogitsParams {
  float* x = nullptr;  // [rows, dim], rows one after the other
  int rows = 0;
  int dim = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
};

struct SiluMulParams {
  const float* x = nullptr;  // [rows, 2 * dim], row stride ldx
  int64_t ldx = 0;
  int rows = 0;
  int dim = 0;
  float* out = nullptr;  // [rows, dim]
  int64_t ldo = 0;
};

// out[i] = x[rows[i]]
struct GatherRowsParams {
  const float* x = nullptr;  // [any, dim], row stride ldx
  int64_t ldx = 0;
  const int32_t* rows = nullptr;  // [num_rows]
  int num_rows = 0;
  int dim = 0;
  float* out = nullptr;  // [num_rows, dim], row stride ldo
  int64_t ldo = 0;
};

struct SlotCopy {
  int32_t src, dst, slots;
};

// Copies the first `slots` slots of block src into block dst, in one layer.
struct CopyBlocksParams {
  const SlotCopy* copies = nullptr;  // [num_copies]
  int num_copies = 0;
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  KvLayer cache;
};

}  // namespace octavo
