#include "model/quantize_on_load.h"

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

constexpr int kBlock = 32;

class QuantizeOnLoad final : public WeightFiles {
 public:
  QuantizeOnLoad(std::shared_ptr<WeightFiles> files, WeightFormat format) : files_(std::move(files)), format_(format) {}

  std::vector<std::string> names() const override { return files_->names(); }
  bool has(const std::string& name) const override { return files_->has(name); }
  WeightInfo info(const std::string& name) const override { return files_->info(name); }
  MatrixSource matrix(const std::string& name, int n, int k) const override {
    return quantized(name, files_->matrix(name, n, k));
  }
  MatrixSource stacked(const std::string& name, int index, int count, int n, int k) const override {
    return quantized(name, files_->stacked(name, index, count, n, k));
  }
  const std::byte* bytes(const std::string& name, const std::vector<int64_t>& shape) const override {
    return files_->bytes(name, shape);
  }
  void release(const std::string& name) override { files_->release(name); }
  size_t file_bytes() const override { return files_->file_bytes(); }

 private:
  MatrixSource quantized(const std::string& name, MatrixSource source) const {
    const bool dense = weight_format_info(source.format).block == 1;
    if (!dense || source.n == 1 || source.k % kBlock != 0) return source;
    const bool vocabulary = name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight") ||
                            name == "token_embd.weight" || name == "output.weight";
    source.pack_as = vocabulary ? WeightFormat::kQ8_0 : format_;
    return source;
  }

  std::shared_ptr<WeightFiles> files_;
  WeightFormat format_;
};

}  // namespace

std::unique_ptr<WeightFiles> quantize_on_load(std::shared_ptr<WeightFiles> files, const std::string& quantization) {
  if (quantization != "q8" && quantization != "q4") {
    throw Error(ErrorCode::kInvalidArgument, "quantization", cat("quantization must be q8 or q4, got ", quantization));
  }
  const WeightFormat format = quantization == "q8" ? WeightFormat::kQ8_0 : WeightFormat::kQ4_1;
  return std::make_unique<QuantizeOnLoad>(std::move(files), format);
}

}  // namespace octavo
