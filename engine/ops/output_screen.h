#pragma once
#include <cstddef>

#include "ops/packed_weight.h"

namespace octavo {

// What finds the greatest outputs of a matrix without reading all of it: a coarser copy, and for each row a bound on
// how far its output is from the copy's. Made by Backend::make_screen, used by one linear() at a time.
class OutputScreen {
 public:
  virtual ~OutputScreen() = default;
  virtual const PackedWeight& coarse() const = 0;  // what is read first
  virtual int columns() const = 0;                 // of the coarse copy: WorkspaceLimits::max_k covers them
  virtual int max_tokens() const = 0;              // for more of them it does not pay
  virtual size_t bytes() const = 0;
};

}  // namespace octavo
