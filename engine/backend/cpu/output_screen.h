#pragma once
#include <memory>
#include <vector>

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/packed.h"
#include "backend/cpu/screen_kernels.h"
#include "ops/output_screen.h"
#include "tensor/huge_pages.h"

namespace octavo::cpu {

// The coarse copy is q4_0 in 32-column groups, by falling magnitude of the columns in all rows: few features hold most
// of an input's norm, and those that a tied embedding is written with are among the large ones. The first group comes
// twice, the second time what the first rounded away.
//
// By Cauchy and Schwarz an output is from its coarse one no farther than |e1| |x1| + |e2| |x2| + |w| |dx|: with e1 and
// e2 the errors of the copy in the first group and in the others, dx what the kernels round in the input.
class CpuOutputScreen final : public OutputScreen {
 public:
  CpuOutputScreen(std::unique_ptr<CpuPackedWeight> coarse, std::vector<ScreenPanel> panels);

  const PackedWeight& coarse() const override { return *coarse_; }
  int columns() const override { return coarse_->columns(); }
  int max_tokens() const override { return kTokenSlots; }
  size_t bytes() const override { return coarse_->bytes() + panels_.size() * sizeof(ScreenPanel); }

  const ScreenPanel* panels() const { return panels_.data(); }
  int num_panels() const { return static_cast<int>(panels_.size()); }  // whole ones: of the rows left nothing is known

  // Whether the next product is screened. Where too many rows are left to multiply, the whole matrix is read for a
  // while.
  bool pays() const { return pause_ == 0 || --pause_ == 0; }
  void note(int panels_left) const;
  std::vector<float>& greatest() const { return greatest_; }  // scratch

 private:
  std::unique_ptr<CpuPackedWeight> coarse_;
  std::vector<ScreenPanel> panels_;
  mutable std::vector<float> greatest_;
  mutable float share_left_ = 0.0f;  // running average
  mutable int pause_ = 0;
};

// Null where the copy would not be much smaller than the matrix.
std::unique_ptr<OutputScreen> make_screen(CpuQueue& queue, HugePages& memory, const PackedWeight& weight);

}  // namespace octavo::cpu
