#pragma once
#include <cstdint>

namespace octavo {

inline constexpr int kScanBlock = 64;  // a row is summarised in blocks of this many logits

inline int num_scan_blocks(int n) { return (n + kScanBlock - 1) / kScanBlock; }

struct RowScan {
  float max = 0.0f;     // -inf: every logit is
  bool finite = false;  // neither NaN nor +inf anywhere
};

// Passes over one row of logits. Every instruction set gives the same bits: they share one source without fused
// multiply-adds, whose reduction orders depend on n alone.
struct RowKernels {
  const char* isa;
  // block_max: [num_scan_blocks(n)], the largest of each block (NaN counts as smallest).
  RowScan (*scan)(const float* x, int n, float* block_max);
  // Sum of exp(x - max).
  double (*sum_exp)(const float* x, int n, float max);
  // weights[i] = round(2^30 exp((x[i] - max) * scale)): integers, so that sums are exact in any order.
  // block_mass: [num_scan_blocks(n)] or null. Returns the sum of the weights.
  uint64_t (*weigh)(const float* x, int n, float max, float scale, uint32_t* weights, uint64_t* block_mass);
  int (*count_greater)(const float* x, int n, float value);
};

inline constexpr float kWeightOne = 1073741824.0f;  // the weight of the largest logit, 2^30

const RowKernels& row_kernels();           // the best for this machine
const RowKernels& baseline_row_kernels();  // what every machine can run

}  // namespace octavo
