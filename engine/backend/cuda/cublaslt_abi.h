#pragma once
// The part of cuBLASLt's C interface that the backend calls, so that it builds without the library's headers. Its
// values are fixed by the library's ABI; where the header is there it is compared with these.
#include <cstddef>
#include <cstdint>

namespace octavo::cuda::lt {

using Handle = void*;
using Descriptor = void*;  // of a product, a layout or a preference
using Status = int;        // 0: success

inline constexpr int kTypeF32 = 0, kTypeF16 = 2, kTypeBF16 = 14;  // cudaDataType_t
inline constexpr int kComputeF32 = 68;                            // cublasComputeType_t
inline constexpr int kTranspose = 1;                              // cublasOperation_t

// cublasLtMatmulDescAttributes_t
inline constexpr int kProductTransA = 3, kProductEpilogue = 7, kProductBiasPointer = 8, kProductBiasType = 26;
inline constexpr int kEpilogueNone = 1, kEpilogueBias = 4;
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kPreferenceWorkspaceBytes = 1, kPreferenceReductions = 3;
inline constexpr uint32_t kReductionNone = 0;
// cublasLtMatmulAlgoConfigAttributes_t
inline constexpr int kAlgoSplitK = 2, kAlgoReduction = 3;

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

// The functions, by the names that the library exports.
struct Functions {
  Status (*cublasLtCreate)(Handle*);
  Status (*cublasLtDestroy)(Handle);
  Status (*cublasLtMatmulDescCreate)(Descriptor*, int compute, int scale);
  Status (*cublasLtMatmulDescDestroy)(Descriptor);
  Status (*cublasLtMatmulDescSetAttribute)(Descriptor, int attribute, const void*, size_t);
  Status (*cublasLtMatrixLayoutCreate)(Descriptor*, int type, uint64_t rows, uint64_t columns, int64_t stride);
  Status (*cublasLtMatrixLayoutDestroy)(Descriptor);
  Status (*cublasLtMatmulPreferenceCreate)(Descriptor*);
  Status (*cublasLtMatmulPreferenceDestroy)(Descriptor);
  Status (*cublasLtMatmulPreferenceSetAttribute)(Descriptor, int attribute, const void*, size_t);
  Status (*cublasLtMatmulAlgoGetHeuristic)(Handle, Descriptor product, Descriptor a, Descriptor b, Descriptor c,
                                           Descriptor d, Descriptor preference, int wanted, Heuristic*, int* found);
  Status (*cublasLtMatmulAlgoConfigGetAttribute)(const Algorithm*, int attribute, void*, size_t, size_t* written);
  Status (*cublasLtMatmulAlgoCheck)(Handle, Descriptor product, Descriptor a, Descriptor b, Descriptor c, Descriptor d,
                                    const Algorithm*, Heuristic*);
  Status (*cublasLtMatmul)(Handle, Descriptor product, const void* alpha, const void* a, Descriptor, const void* b,
                           Descriptor, const void* beta, const void* c, Descriptor, void* d, Descriptor,
                           const Algorithm*, void* workspace, size_t workspace_bytes, void* stream);
};

}  // namespace octavo::cuda::lt

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
namespace octavo::cuda::lt {
static_assert(kTypeF32 == CUDA_R_32F && kTypeF16 == CUDA_R_16F && kTypeBF16 == CUDA_R_16BF);
static_assert(kComputeF32 == CUBLAS_COMPUTE_32F && kTranspose == CUBLAS_OP_T);
static_assert(kProductTransA == CUBLASLT_MATMUL_DESC_TRANSA && kProductEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(kProductBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(kProductBiasType == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(kEpilogueNone == CUBLASLT_EPILOGUE_DEFAULT && kEpilogueBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(kPreferenceWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kPreferenceReductions == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(kReductionNone == CUBLASLT_REDUCTION_SCHEME_NONE);
static_assert(kAlgoSplitK == CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
static_assert(kAlgoReduction == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
}  // namespace octavo::cuda::lt
#endif
