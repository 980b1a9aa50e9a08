#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/launches.h"
#include "ops/packed_weight.h"

namespace octavo::cuda {

// A matrix on the GPU. Neighbouring parts of one format lie together where their tiles allow it.
class GpuWeight final : public PackedWeight {
 public:
  struct Section {
    WeightView view;
    int first_row = 0;
  };

  // Packs on the host's threads and moves the result.
  GpuWeight(Backend& backend, Queue& queue, const std::vector<MatrixSource>& parts);

  size_t bytes() const override { return bytes_; }
  std::string format() const override;
  const Backend* backend() const override { return &backend_; }
  void dequantize_row(int row, float* out) const override;
  std::optional<DensePanels> dense_panels(int, int) const override { return std::nullopt; }
  const std::vector<Section>& sections() const { return sections_; }

 private:
  void add_section(const std::vector<MatrixSource>& parts, size_t first, size_t last);
  std::byte* keep(Buffer host);

  Backend& backend_;
  Queue& queue_;
  std::vector<Section> sections_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  size_t bytes_ = 0;
};

// The experts of a layer with what the kernels read of them on the GPU.
struct GpuExpertTable final : ExpertTable {
  GpuExpertTable(Backend& backend, Queue& queue, std::vector<ExpertMatrices> matrices);
  DeviceExpert shape;
  std::unique_ptr<DeviceMemory> experts_on_device;  // DeviceExpert [experts]
};

}  // namespace octavo::cuda
