#pragma once
#include <cstddef>

#include "backend/cpu/kernels.h"
#include "backend/cpu/packed.h"
#include "backend/cpu/queue.h"
#include "ops/params.h"

namespace octavo::cpu {

inline constexpr int kTileTokens = 48;     // of a dense tile, at most
inline constexpr int kDenseTileRows = 64;  // four panels, which run side by side at m = 1

// What kernels multiply the weights of a format with.
enum class Reads { kF32, kBF16, kGroup8, kGroup16 };

// The activations of a linear, after its prologue, in each form that a section of its weight reads. They lie in the
// queue's workspace, until the next op reserves it.
class LinearInputs {
 public:
  struct Form {
    std::byte* data = nullptr;
    size_t stride = 0;  // of a block of tokens
    int slots = 1;      // tokens of a block
    size_t slot_bytes = 0;
    std::byte* token(int t) const { return data + t / slots * stride + t % slots * slot_bytes; }
  };

  // Prepares all rows of p.x.
  LinearInputs(CpuQueue& queue, const Kernels& kernels, const LinearParams& p);

  Reads reads(const CpuPackedWeight::Section& section) const;
  const Form& form(Reads reads) const;
  const Outliers& outliers(int token) const;  // of Reads::kGroup8

  // Rows [row, row + rows) of a section, on whole panels, for `m` tokens.
  LinearTile tile(const CpuPackedWeight::Section& section, int row, int rows, int token, int m, int worker) const;

 private:
  void reserve();
  template <class Group>
  Form quantized_form(std::byte* data) const;
  void fetch(int row, int part) const;
  void prepare(int row, int worker);

  CpuQueue& queue_;
  const Kernels& kernels_;
  const LinearParams& p_;
  const CpuPackedWeight& weight_;
  const int features_;  // of a row of x, after the prologue
  const int columns_;   // of the weight, in which a feature may come twice
  bool copy_ = false;
  Form f32_, bf16_, group8_, group16_;
  std::byte* outliers_ = nullptr;
  std::byte* rows_ = nullptr;
  std::byte* ordered_ = nullptr;
  std::byte* scratch_ = nullptr;
};

size_t linear_workspace(const WorkspaceLimits& limits, int threads);  // bytes

}  // namespace octavo::cpu
