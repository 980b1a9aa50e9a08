#pragma once
#include <string>
#include <vector>

#include "model/weights.h"

namespace octavo {

// Rows first, first + step, ... of one expert's matrix.
struct ExpertRows {
  int index = 0;  // of the expert
  int count = 0;  // experts in the tensor
  int first = 0;
  int step = 1;
  int n = 0;  // rows
  int k = 0;
};

// Experts as transformers stores gpt-oss's: all in one tensor with gate and up rows in turn, either dense with rows and
// columns exchanged, `name` [experts, k, rows], or in MXFP4, `name`_blocks [experts, rows, k / 32, 16] and
// `name`_scales [experts, rows, k / 32]. Copied into `storage` as a matrix of rows.
bool has_fused_experts(const WeightFiles& files, const std::string& name);
std::vector<std::string> fused_expert_tensors(const WeightFiles& files, const std::string& name);
MatrixSource fused_expert(const WeightFiles& files, const std::string& name, const ExpertRows& rows,
                          std::vector<std::byte>& storage);

}  // namespace octavo
