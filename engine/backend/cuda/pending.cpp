// Ops whose kernels are not written yet say so by name.
#include "backend/cuda/launches.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

[[noreturn]] void pending(const char* op) {
  throw Error(ErrorCode::kUnsupported, op, cat("the CUDA backend has no kernel for ", op, " yet"));
}

}  // namespace

void attention(const Launch&, const AttentionParams&) { pending("attention"); }
size_t attention_workspace(const WorkspaceLimits&, const DeviceProperties&) { return 0; }

void rope_write(const Launch&, const RopeWriteParams&) { pending("rope_write"); }

void copy_blocks(const Launch&, const CopyBlocksParams&) { pending("copy_blocks"); }

}  // namespace octavo::cuda
