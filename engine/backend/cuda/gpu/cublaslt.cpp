// Dense products by cuBLASLt. Row-major y [m, n] = x [m, k] w [n, k]^T is, by columns, y^T [n, m] = w x^T: the
// library's A is the weight, transposed, its B the input, its D the result, and a bias along D's rows is one per output
// feature.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "backend/cuda/cublaslt_abi.h"
#include "backend/cuda/dense_library.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
// The number of rows whose best algorithm serves every number of rows, where results may not depend on it.
constexpr int kTypicalRows = 128;

void check_lt(lt::Status status, const char* what) {
  if (status == 0) return;
  throw Error(ErrorCode::kInternal, "cublasLt", cat(what, ": cuBLASLt says ", status));
}

void* open_library() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

bool load(void* library, lt::Functions& f) {
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
#define OCTAVO_FIND(name) find(f.name, #name)
  return OCTAVO_FIND(cublasLtCreate) && OCTAVO_FIND(cublasLtDestroy) && OCTAVO_FIND(cublasLtMatmulDescCreate) &&
         OCTAVO_FIND(cublasLtMatmulDescDestroy) && OCTAVO_FIND(cublasLtMatmulDescSetAttribute) &&
         OCTAVO_FIND(cublasLtMatrixLayoutCreate) && OCTAVO_FIND(cublasLtMatrixLayoutDestroy) &&
         OCTAVO_FIND(cublasLtMatmulPreferenceCreate) && OCTAVO_FIND(cublasLtMatmulPreferenceDestroy) &&
         OCTAVO_FIND(cublasLtMatmulPreferenceSetAttribute) && OCTAVO_FIND(cublasLtMatmulAlgoGetHeuristic) &&
         OCTAVO_FIND(cublasLtMatmulAlgoConfigGetAttribute) && OCTAVO_FIND(cublasLtMatmulAlgoCheck) &&
         OCTAVO_FIND(cublasLtMatmul);
#undef OCTAVO_FIND
}

int data_type(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF16:
      return lt::kTypeF16;
    case WeightFormat::kBF16:
      return lt::kTypeBF16;
    default:
      return lt::kTypeF32;
  }
}

// Descriptors of one product; they are host structures, cheap to make.
class Product {
 public:
  Product(const lt::Functions& f, const ProductParams& p, int m) : f_(f) {
    const WeightView& w = *p.weight;
    const int type = data_type(w.format);
    const auto width = static_cast<int64_t>(input_width(w.k));
    check_lt(f.cublasLtMatmulDescCreate(&product, lt::kComputeF32, lt::kTypeF32), "describing a product");
    set(lt::kProductTransA, lt::kTranspose);
    if (p.bias != nullptr) {
      set(lt::kProductEpilogue, lt::kEpilogueBias);
      set(lt::kProductBiasPointer, p.bias);
      set(lt::kProductBiasType, lt::kTypeF32);
    }
    layout(a, type, width, w.n, width);
    layout(b, type, width, m, width);
    layout(d, lt::kTypeF32, w.n, m, p.ldy);
  }
  ~Product() {
    for (const lt::Descriptor layout : {a, b, d}) {
      if (layout != nullptr) f_.cublasLtMatrixLayoutDestroy(layout);
    }
    if (product != nullptr) f_.cublasLtMatmulDescDestroy(product);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  lt::Descriptor product = nullptr, a = nullptr, b = nullptr, d = nullptr;

 private:
  template <class T>
  void set(int attribute, const T& value) {
    check_lt(f_.cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value), "describing a product");
  }
  void layout(lt::Descriptor& out, int type, int64_t rows, int64_t columns, int64_t stride) {
    check_lt(
        f_.cublasLtMatrixLayoutCreate(&out, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), stride),
        "describing a matrix");
  }

  const lt::Functions& f_;
};

class CublasLt final : public DenseLibrary {
 public:
  CublasLt(const lt::Functions& functions, bool fast) : f_(functions), fast_(fast) {
    check_lt(f_.cublasLtCreate(&handle_), "starting cuBLASLt");
  }
  ~CublasLt() override { f_.cublasLtDestroy(handle_); }

  size_t workspace_bytes() const override { return kWorkspaceBytes; }

  void product(const Launch& launch, const ProductParams& p) override {
    const lt::Algorithm algorithm = choose(p);
    const Product described(f_, p, p.m);
    const float alpha = 1.0f, beta = p.accumulate ? 1.0f : 0.0f;
    check_lt(f_.cublasLtMatmul(handle_, described.product, &alpha, p.weight->codes, described.a, p.input, described.b,
                               &beta, p.y, described.d, p.y, described.d, &algorithm, launch.workspace,
                               std::min(launch.workspace_bytes, kWorkspaceBytes), launch.stream),
             "a product");
  }

 private:
  // Shape and kind; with `fast` also how many rows, to a power of two.
  using Key = std::tuple<WeightFormat, int, int, bool, bool, int64_t, int>;

  lt::Algorithm choose(const ProductParams& p) {
    const int rows = fast_ ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(p.m))) : kTypicalRows;
    const Key key{p.weight->format, p.weight->n, p.weight->k, p.bias != nullptr, p.accumulate, p.ldy, rows};
    const std::lock_guard lock(mutex_);
    const auto [at, added] = algorithms_.try_emplace(key);
    if (added) {
      try {
        at->second = search(p, rows);
      } catch (...) {
        algorithms_.erase(at);
        throw;
      }
    }
    return at->second;
  }

  // The library's best whose sums are not cut along k: each element is then added up in one order, by one kernel, for
  // every number of rows.
  lt::Algorithm search(const ProductParams& p, int rows) const {
    const Product described(f_, p, rows);
    lt::Descriptor preference = nullptr;
    check_lt(f_.cublasLtMatmulPreferenceCreate(&preference), "choosing a product");
    const size_t workspace = kWorkspaceBytes;
    f_.cublasLtMatmulPreferenceSetAttribute(preference, lt::kPreferenceWorkspaceBytes, &workspace, sizeof workspace);
    if (!fast_) {
      f_.cublasLtMatmulPreferenceSetAttribute(preference, lt::kPreferenceReductions, &lt::kReductionNone,
                                              sizeof lt::kReductionNone);
    }
    std::array<lt::Heuristic, 32> found{};
    int count = 0;
    const lt::Status status = f_.cublasLtMatmulAlgoGetHeuristic(handle_, described.product, described.a, described.b,
                                                                described.d, described.d, preference,
                                                                static_cast<int>(found.size()), found.data(), &count);
    f_.cublasLtMatmulPreferenceDestroy(preference);
    check_lt(status, "choosing a product");
    for (int i = 0; i < count; ++i) {
      if (found[i].state == 0 && (fast_ || serves_all(p, found[i].algorithm))) return found[i].algorithm;
    }
    throw Error(ErrorCode::kUnsupported, "cublasLt",
                cat("cuBLASLt has no product of ", p.weight->n, " x ", p.weight->k, " ",
                    weight_format_info(p.weight->format).name, fast_ ? "" : " without split sums"));
  }

  bool serves_all(const ProductParams& p, const lt::Algorithm& algorithm) const {
    int32_t split = 1;
    uint32_t reduction = 0;
    f_.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, lt::kAlgoSplitK, &split, sizeof split, nullptr);
    f_.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, lt::kAlgoReduction, &reduction, sizeof reduction, nullptr);
    if (split > 1 || reduction != lt::kReductionNone) return false;
    for (const int m : {1, 3, 16, 100, 256, 2048}) {
      const Product described(f_, p, m);
      lt::Heuristic result{};
      if (f_.cublasLtMatmulAlgoCheck(handle_, described.product, described.a, described.b, described.d, described.d,
                                     &algorithm, &result) != 0 ||
          result.workspace_bytes > kWorkspaceBytes) {
        return false;
      }
    }
    return true;
  }

  lt::Functions f_;
  bool fast_;
  lt::Handle handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, lt::Algorithm> algorithms_;
};

}  // namespace

std::unique_ptr<DenseLibrary> open_dense_library(bool fast) {
  lt::Functions functions{};
  void* library = open_library();
  if (library == nullptr || !load(library, functions)) return nullptr;
  return std::make_unique<CublasLt>(functions, fast);
}

}  // namespace octavo::cuda
