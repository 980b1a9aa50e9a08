#pragma once
// The device behind the runtime API, or all of several: they share a memory, and a stream is one's own. Every call
// holds its lock; kernels run in the call that waits for them.
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backend/cuda/emulator/block.h"
#include "backend/cuda/emulator/runtime_api.h"

namespace octavo::emulator {

// What a test can make fail, numbered as octavo_emulator_call.
enum class Call { kMalloc, kLaunch, kSync, kCopy, kDevice };
inline constexpr int kCalls = 5;

using Work = std::function<void()>;

struct Graph {
  std::vector<Work> work;
};
struct GraphExec {
  std::vector<Work> work;
};
struct Stream {
  int device = 0;
  std::deque<Work> work;
  std::shared_ptr<Graph> capture;  // shared with streams that joined it through an event
  bool leads_capture = false;
};
// One time that an event was put into a stream. What waits for it does not see later ones.
struct EventRecord {
  Stream* stream = nullptr;
  bool reached = false;
  std::chrono::steady_clock::time_point time;
};
struct Event {
  std::shared_ptr<EventRecord> last;
  std::shared_ptr<Graph> capture;
};
struct Copy {
  void* to;
  size_t to_pitch;
  const void* from;
  size_t from_pitch;
  size_t width, height;
};

class Device {
 public:
  static Device& get();

  cudaDeviceProp properties() const;
  // An injected or lasting error, else cudaSuccess. note() keeps an error for cudaGetLastError.
  cudaError_t answer(Call call);
  cudaError_t note(cudaError_t error);
  cudaError_t last_error(bool clear);

  cudaError_t allocate(void** memory, size_t bytes, bool on_device);
  cudaError_t release(void* memory, bool on_device);
  cudaError_t register_host(void* memory, size_t bytes);
  cudaError_t unregister_host(void* memory);
  cudaMemoryType type_of(const void* memory, size_t bytes) const;
  size_t free_bytes() const;
  size_t live_bytes() const;
  cudaError_t copy(const Copy& copy, cudaMemcpyKind kind, Stream* stream);
  cudaError_t fill(void* to, int value, size_t bytes, Stream* stream);
  // Where it is strict: an error if a word of the bytes is a pointer to memory that is the host's.
  cudaError_t check_pointers(const void* bytes, size_t size);

  int count() const { return count_; }
  Stream* create_stream(int device);
  bool is_elsewhere(Stream* stream, int device) const;
  cudaError_t destroy_stream(Stream* stream);
  cudaError_t enqueue(Stream* stream, Work work);
  cudaError_t launch(const Block::Shape& shape, Stream* stream, Work body);
  cudaError_t synchronize(Stream* stream);
  cudaError_t synchronize_all();
  cudaError_t query(Stream* stream);
  Event* create_event();
  cudaError_t destroy_event(Event* event);
  cudaError_t record_event(Event* event, Stream* stream);
  cudaError_t wait_event(Stream* stream, Event* event);
  cudaError_t synchronize(Event* event);
  cudaError_t query(Event* event);
  cudaError_t elapsed(float* milliseconds, const Event* begin, const Event* end);

  cudaError_t begin_capture(Stream* stream);
  cudaError_t end_capture(Stream* stream, Graph** graph);
  bool capturing(Stream* stream) { return of(stream).capture != nullptr; }
  GraphExec* instantiate(const Graph* graph);
  cudaError_t launch_graph(GraphExec* exec, Stream* stream);
  cudaError_t destroy_graph(Graph* graph);
  cudaError_t destroy_exec(GraphExec* exec);

  void fail_later(Call call, int after, cudaError_t error);
  void set_seed(unsigned seed) { seed_ = seed; }
  void set_memory(size_t bytes) { total_bytes_ = bytes; }
  void set_strict(bool strict) { strict_ = strict; }
  void set_count(int count) { count_ = count; }
  void skip_kernels(bool skip) { skip_kernels_ = skip; }
  void reset_hooks();

 private:
  friend class Guard;
  static constexpr size_t kTotalBytes = size_t{2} << 30;

  struct Allocation {
    size_t bytes;
    cudaMemoryType type;
    bool owned;
  };
  struct Failure {
    int after = -1;  // -1: none
    cudaError_t error = cudaSuccess;
  };

  Stream& of(Stream* stream) { return stream ? *stream : default_stream_; }
  void step(Stream& stream);
  void drain(Stream& stream);
  void drain_all();
  bool has_work(const EventRecord& record) const;
  void reach(EventRecord& record);

  std::recursive_mutex mutex_;
  std::map<const std::byte*, Allocation> allocations_;  // by begin
  std::unordered_map<Stream*, std::unique_ptr<Stream>> streams_;
  std::unordered_map<Event*, std::unique_ptr<Event>> events_;
  std::unordered_map<Graph*, std::shared_ptr<Graph>> graphs_;
  std::unordered_map<GraphExec*, std::unique_ptr<GraphExec>> execs_;
  Stream default_stream_;
  int captures_ = 0;
  size_t total_bytes_ = kTotalBytes;
  size_t used_bytes_ = 0;
  unsigned seed_ = 0;
  bool strict_ = false;
  int count_ = 1;
  bool skip_kernels_ = false;
  std::array<Failure, kCalls> failures_;
  cudaError_t lasting_ = cudaSuccess;
  cudaError_t last_ = cudaSuccess;
};

// The locked device.
class Guard {
 public:
  Guard() : device_(Device::get()), lock_(device_.mutex_) {}
  Device* operator->() const { return &device_; }

 private:
  Device& device_;
  std::lock_guard<std::recursive_mutex> lock_;
};

}  // namespace octavo::emulator
