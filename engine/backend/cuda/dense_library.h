#pragma once
#include <cstddef>
#include <memory>

#include "backend/cuda/launches.h"

namespace octavo::cuda {

// Dense products by a library that is found at run time.
class DenseLibrary {
 public:
  virtual ~DenseLibrary() = default;
  virtual size_t workspace_bytes() const = 0;
  virtual void product(const Launch& launch, const ProductParams& p) = 0;
};

// Null where there is none: the backend's own products then serve. fast: see BackendOptions.
std::unique_ptr<DenseLibrary> open_dense_library(bool fast);

}  // namespace octavo::cuda
