#pragma once
#include <memory>
#include <string>

#include "ops/backend.h"

namespace octavo {

struct BackendChoice {
  // "cpu", "cuda" (and "cuda:1"), or "auto": a GPU where there is a usable one.
  std::string device = "cpu";
  std::string isa;    // of the CPU: instruction set; empty: the machine's best
  bool fast = false;  // results may depend on the company; only GPUs gain by it
};

// Error(kUnsupported, "device", ...) says why the device cannot be used.
std::unique_ptr<Backend> open_backend(const BackendChoice& choice);

}  // namespace octavo
