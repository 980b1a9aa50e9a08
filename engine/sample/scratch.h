#pragma once
#include <cstdint>
#include <vector>

#include "sample/row_kernels.h"

namespace octavo {

// Working memory of one thread that samples, sized once for the vocabulary.
struct SampleScratch {
  explicit SampleScratch(int vocab)
      : row(vocab),
        block_max(num_scan_blocks(vocab)),
        block_order(num_scan_blocks(vocab)),
        block_mass(num_scan_blocks(vocab)),
        keys(vocab),
        gathered(vocab),
        gathered_weights(vocab),
        weights(vocab) {}
  int vocab() const { return static_cast<int>(row.size()); }

  std::vector<float> row;                  // [vocab] logits after the stages that change them
  std::vector<float> block_max;            // [blocks] of the row in use
  std::vector<float> block_order;          // [blocks] partially ordered copy
  std::vector<uint64_t> block_mass;        // [blocks]
  std::vector<uint64_t> keys;              // [vocab] candidates, see select.h
  std::vector<float> gathered;             // [vocab] logits of the candidates
  std::vector<uint32_t> gathered_weights;  // [vocab]
  std::vector<uint32_t> weights;           // [vocab] by token id; candidates only where candidates were selected
};

}  // namespace octavo
