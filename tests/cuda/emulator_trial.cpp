// Small kernels and host sequences that use each part of the emulator, for test_emulator.py.
#include <cstring>
#include <vector>

#include "backend/cuda/mma.h"

namespace {

using namespace octavo::cuda;

__global__ void transpose(const float* in, float* out, int n) {
  __shared__ float tile[32][33];
  tile[threadIdx.y][threadIdx.x] = in[(blockIdx.y * 32 + threadIdx.y) * n + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  out[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

// Reads its neighbour's value; without the barrier the outcome depends on who came first.
template <bool kBarrier>
__global__ void take_from_neighbour(int* out) {
  int* values = dynamic_shared<int>();
  const int n = static_cast<int>(blockDim.x), i = static_cast<int>(threadIdx.x);
  values[i] = 100 + i;
  if (kBarrier) __syncthreads();
  out[i] = values[(i + 1) % n];
}

// Waits for its copy, or reads the place where it will land.
template <bool kWait>
__global__ void copy_through_shared(const int4* in, int4* out) {
  int4* staged = dynamic_shared<int4>();
  cp_async_16(staged + threadIdx.x, in + threadIdx.x, threadIdx.x % 2 == 0);
  cp_async_commit();
  if (kWait) cp_async_wait<0>();
  out[threadIdx.x] = staged[threadIdx.x];
}

__global__ void divergent_barrier(int* out) {
  if (threadIdx.x < 16) {
    __syncthreads();
    out[threadIdx.x] = 1;
  } else {
    __syncthreads();
    out[threadIdx.x] = 2;
  }
}

__global__ void exited_lane(int* out) {
  if (threadIdx.x == 5) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, static_cast<int>(threadIdx.x), 1);
}

// One row of results per collective, a value per lane.
__global__ void collectives(const int* in, int* out) {
  const int lane = static_cast<int>(threadIdx.x), value = in[lane];
  const unsigned all = 0xffffffffu;
  int row = 0;
  auto put = [&](int result) { out[32 * row++ + lane] = result; };
  put(__shfl_sync(all, value, 3));
  put(__shfl_xor_sync(all, value, 5));
  put(__shfl_down_sync(all, value, 7, 16));
  put(__shfl_up_sync(all, value, 2, 8));
  put(static_cast<int>(__ballot_sync(all, value > 0)));
  put(__any_sync(all, value > 90));
  put(__all_sync(all, value > -1000));
  put(__reduce_add_sync(all, value));
  put(__reduce_min_sync(all, value));
  put(__reduce_max_sync(all, value));
  put(static_cast<int>(__reduce_or_sync(all, static_cast<unsigned>(value))));
  put(__syncthreads_count(value > 0));
  put(static_cast<int>(__byte_perm(static_cast<unsigned>(value), 0x44332211u, 0x7610u)));
}

__global__ void count(unsigned* counter, float* sum, int* greatest) {
  atomicAdd(counter, 1u);
  atomicAdd(sum, 0.5f);
  atomicMax(greatest, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
}

// c[16, 8] = a[16, 16] b[8, 16]^T, by way of shared memory; a and b hold 16-bit patterns.
template <bool kBf16, bool kTransposed>
__global__ void one_product(const uint16_t* a, const uint16_t* b, float* c) {
  uint16_t* shared_a = dynamic_shared<uint16_t>();
  uint16_t* shared_b = shared_a + 256;
  const int lane = static_cast<int>(threadIdx.x);
  cp_async_16(shared_a + 8 * lane, a + 8 * lane);
  if (lane < 16) cp_async_16(shared_b + 8 * lane, b + 8 * lane);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  uint32_t fa[4], fb[2];
  ldmatrix_x4(fa, shared_a + (lane % 16) * 16 + lane / 16 * 8);
  if constexpr (kTransposed) {
    ldmatrix_x2_trans(fb, shared_b + (lane % 16) * 8);  // b given as [16, 8]
  } else {
    ldmatrix_x2(fb, shared_b + (lane % 8) * 16 + lane / 8 % 2 * 8);
  }
  float d[4] = {};
  if constexpr (kBf16) {
    mma_bf16(d, fa, fb);
  } else {
    mma_f16(d, fa, fb);
  }
  const int g = lane / 4, t = lane % 4;
  for (int h = 0; h < 2; ++h)
    for (int e = 0; e < 2; ++e) c[(g + 8 * h) * 8 + 2 * t + e] = d[2 * h + e];
}

__global__ void convert(const float* in, uint16_t* f16, uint16_t* bf16, uint8_t* fp8, float* back, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  f16[i] = __half_as_ushort(__float2half_rn(in[i]));
  bf16[i] = __bfloat16_as_ushort(__float2bfloat16_rn(in[i]));
  fp8[i] = __nv_cvt_float_to_fp8(in[i], __NV_SATFINITE, __NV_E4M3);
  back[i] = __half2float(__half(__nv_cvt_fp8_to_halfraw(fp8[i], __NV_E4M3)));
}

__global__ void fill(int* out, int value) { out[threadIdx.x] = value; }

__global__ void past_the_end(int* out) {
  int* values = dynamic_shared<int>();
  values[threadIdx.x + 1] = 1;
  out[0] = values[threadIdx.x];
}

// A copy of host memory on the device.
template <class T>
class OnDevice {
 public:
  OnDevice(const T* host, size_t count) : count_(count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), "cudaMalloc");
    if (host) check(cudaMemcpy(data_, host, count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~OnDevice() { cudaFree(data_); }
  void read(T* host) const { check(cudaMemcpy(host, data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy"); }
  operator T*() const { return data_; }

 private:
  T* data_ = nullptr;
  size_t count_;
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void trial_transpose(const float* in, float* out, int n) {
  const OnDevice<float> from(in, n * n), to(nullptr, n * n);
  launch(transpose, dim3(n / 32, n / 32), dim3(32, 32), 0, nullptr, from, to, n);
  to.read(out);
}

void trial_neighbour(int barrier, int* out, int n) {
  const OnDevice<int> to(nullptr, n);
  launch(barrier ? take_from_neighbour<true> : take_from_neighbour<false>, 1, n, n * sizeof(int), nullptr, to);
  to.read(out);
}

void trial_async_copy(int wait, const int* in, int* out, int n) {
  const OnDevice<int> from(in, 4 * n), to(nullptr, 4 * n);
  launch(wait ? copy_through_shared<true> : copy_through_shared<false>, 1, n, n * sizeof(int4), nullptr,
         reinterpret_cast<const int4*>(static_cast<int*>(from)), reinterpret_cast<int4*>(static_cast<int*>(to)));
  to.read(out);
}

// Each of these ends the process with a message.
void trial_mistake(int which) {
  int out[64];
  const OnDevice<int> to(nullptr, 64);
  if (which == 0) launch(divergent_barrier, 1, 32, 0, nullptr, to);
  if (which == 1) launch(exited_lane, 1, 32, 0, nullptr, to);
  if (which == 2) launch(past_the_end, 1, 32, 32 * sizeof(int), nullptr, to);
  to.read(out);
}

void trial_collectives(const int* in, int* out, int rows) {
  const OnDevice<int> from(in, 32), to(nullptr, 32 * rows);
  launch(collectives, 1, 32, 0, nullptr, from, to);
  to.read(out);
}

void trial_count(int blocks, int threads, unsigned* counter, float* sum, int* greatest) {
  const OnDevice<unsigned> c(counter, 1);
  const OnDevice<float> s(sum, 1);
  const OnDevice<int> g(greatest, 1);
  launch(count, blocks, threads, 0, nullptr, c, s, g);
  c.read(counter);
  s.read(sum);
  g.read(greatest);
}

void trial_product(int bf16, int transposed, const uint16_t* a, const uint16_t* b, float* c) {
  const OnDevice<uint16_t> da(a, 256), db(b, 128);
  const OnDevice<float> dc(nullptr, 128);
  auto* kernel = bf16 ? (transposed ? one_product<true, true> : one_product<true, false>)
                      : (transposed ? one_product<false, true> : one_product<false, false>);
  launch(kernel, 1, 32, 384 * sizeof(uint16_t), nullptr, da, db, dc);
  dc.read(c);
}

void trial_convert(const float* in, uint16_t* f16, uint16_t* bf16, uint8_t* fp8, float* back, int n) {
  const OnDevice<float> from(in, n), b(nullptr, n);
  const OnDevice<uint16_t> h(nullptr, n), bh(nullptr, n);
  const OnDevice<uint8_t> f(nullptr, n);
  launch(convert, (n + 63) / 64, 64, 0, nullptr, from, h, bh, f, b, n);
  h.read(f16);
  bh.read(bf16);
  f.read(fp8);
  b.read(back);
}

// Reuses a pinned buffer before the copy that reads it was waited for (`wait` 0) or after; returns what arrived.
int trial_pinned_reuse(int wait) {
  int* pinned = nullptr;
  check(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)), "cudaMallocHost");
  const OnDevice<int> to(nullptr, 1);
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  *pinned = 1;
  check(cudaMemcpyAsync(to, pinned, sizeof(int), cudaMemcpyHostToDevice, stream), "copy");
  if (wait) check(cudaStreamSynchronize(stream), "wait");
  *pinned = 2;
  check(cudaStreamDestroy(stream), "destroy");
  int arrived;
  to.read(&arrived);
  cudaFreeHost(pinned);
  return arrived;
}

// A graph of two kernels over two streams, launched `times` times with other values written in between. Returns the
// last value, or -1 where the capture ran something.
int trial_graph(int times) {
  const OnDevice<int> from(nullptr, 32), to(nullptr, 32);
  cudaStream_t first, second;
  cudaEvent_t forked, joined;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamCreate(&first), "stream");
  check(cudaStreamCreate(&second), "stream");
  check(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming), "event");
  check(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming), "event");
  int host[32];
  std::memset(host, 0, sizeof host);
  check(cudaMemcpy(to, host, sizeof host, cudaMemcpyHostToDevice), "copy");
  check(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal), "begin");
  launch(fill, 1, 32, 0, first, from, 7);
  check(cudaEventRecord(forked, first), "record");
  check(cudaStreamWaitEvent(second, forked), "fork");
  check(cudaMemcpyAsync(to, from, sizeof host, cudaMemcpyDeviceToDevice, second), "copy");
  check(cudaEventRecord(joined, second), "record");
  check(cudaStreamWaitEvent(first, joined), "join");
  if (cudaStreamSynchronize(first) != cudaErrorStreamCaptureUnsupported) return -2;
  check(cudaStreamEndCapture(first, &graph), "end");
  check(cudaGraphInstantiate(&exec, graph), "instantiate");
  check(cudaGraphDestroy(graph), "destroy");
  to.read(host);
  if (host[0] != 0) return -1;
  for (int i = 0; i < times; ++i) check(cudaGraphLaunch(exec, first), "launch");
  check(cudaStreamSynchronize(first), "wait");
  to.read(host);
  check(cudaGraphExecDestroy(exec), "destroy");
  for (cudaEvent_t event : {forked, joined}) check(cudaEventDestroy(event), "destroy");
  for (cudaStream_t stream : {first, second}) check(cudaStreamDestroy(stream), "destroy");
  return host[31];
}

// Work in one stream waits for an event of another; polling drives it. Returns how often the event was not yet there.
int trial_events() {
  const OnDevice<int> at(nullptr, 32);
  cudaStream_t first, second;
  cudaEvent_t done;
  check(cudaStreamCreate(&first), "stream");
  check(cudaStreamCreate(&second), "stream");
  check(cudaEventCreate(&done), "event");
  for (int i = 1; i <= 3; ++i) launch(fill, 1, 32, 0, first, at, i);
  check(cudaEventRecord(done, first), "record");
  check(cudaStreamWaitEvent(second, done), "wait");
  int host[32];
  check(cudaMemcpyAsync(host, at, sizeof host, cudaMemcpyDeviceToHost, second), "copy");
  const bool ordered = host[0] == 3;
  for (int i = 4; i <= 6; ++i) launch(fill, 1, 32, 0, first, at, i);
  check(cudaEventRecord(done, first), "record");
  int polls = 0;
  while (cudaEventQuery(done) == cudaErrorNotReady) ++polls;
  check(cudaEventDestroy(done), "destroy");
  for (cudaStream_t stream : {first, second}) check(cudaStreamDestroy(stream), "destroy");
  return ordered ? polls : -1;
}

// The status of the first call that fails while memory is allocated, filled by a kernel and waited for.
int trial_status(size_t bytes, int shared_bytes) {
  int* memory = nullptr;
  cudaError_t status = cudaMalloc(reinterpret_cast<void**>(&memory), bytes);
  if (status == cudaSuccess) status = try_launch(fill, 1, 32, static_cast<size_t>(shared_bytes), nullptr, memory, 1);
  if (status == cudaSuccess) status = cudaDeviceSynchronize();
  cudaFree(memory);
  return status;
}
int trial_last_error() { return cudaGetLastError(); }
}
#pragma GCC visibility pop
