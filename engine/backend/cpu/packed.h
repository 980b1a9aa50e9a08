#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/queue.h"
#include "backend/cpu/weight_layout.h"
#include "ops/packed_weight.h"
#include "ops/weight_source.h"

namespace octavo::cpu {

// A matrix as panels (see weight_layout.h). Neighbouring parts of one format make one run of panels; where the format
// changes a new section begins, so fused projections of a mixed file still share one read of the activations.
class CpuPackedWeight final : public PackedWeight {
 public:
  struct Section {
    WeightFormat format;
    int first_row;
    int rows;
    size_t offset;  // of the first panel in the memory
    size_t panel_bytes;
  };

  // input_order: see MatrixSource; the same for all rows.
  // memory: of `bytes` bytes, for all panels.
  CpuPackedWeight(int n, int k, std::vector<Section> sections, std::shared_ptr<std::byte> memory, size_t bytes,
                  std::vector<int32_t> input_order);

  size_t bytes() const override { return bytes_ + input_order_.size() * sizeof(int32_t); }
  std::string format() const override;
  void dequantize_row(int row, float* out) const override;
  std::optional<DensePanels> dense_panels(int first_row, int rows) const override;

  // Of a panel. As many as there are input features, or more: a feature may meet several columns, which add up.
  int columns() const { return input_order_.empty() ? k_ : static_cast<int>(input_order_.size()); }
  const std::vector<Section>& sections() const { return sections_; }
  const std::vector<int32_t>& input_order() const { return input_order_; }
  std::byte* panel(const Section& section, int row) const {  // the panel that holds the section's row `row`
    return memory_.get() + section.offset + row / panel_rows(section.format) * section.panel_bytes;
  }

 private:
  std::vector<Section> sections_;
  std::shared_ptr<std::byte> memory_;
  size_t bytes_;
  std::vector<int32_t> input_order_;
};

// One row of a panel, exactly what its file's format defines. out: [k]
void unpack_row(WeightFormat format, const std::byte* panel, int row, int k, float* out);

// Fills one panel from `rows` rows of the file; the rest of the panel is zero already.
void pack_panel(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* panel);

}  // namespace octavo::cpu
