#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ops/backend.h"
#include "ops/draw_params.h"
#include "runtime/sequence_states.h"

namespace octavo {

// Device memory in pieces of powers of two, given back by pieces and never to the device: work that is in the queue
// may still read a piece that is given back, and whoever gets it writes it behind that work.
class DrawMemory {
 public:
  explicit DrawMemory(Backend& backend) : backend_(backend) {}
  std::unique_ptr<DeviceMemory> take(size_t bytes);
  void give_back(std::unique_ptr<DeviceMemory> memory);

 private:
  Backend& backend_;
  std::unordered_map<size_t, std::vector<std::unique_ptr<DeviceMemory>>> free_;  // by size
};

// What the draws of one sequence read on the device besides logits: its biases, masks and words, and the tokens that
// occurred, which the draws themselves keep up.
struct DrawState {
  explicit DrawState(std::shared_ptr<DrawMemory> from) : pool(std::move(from)) {}
  ~DrawState() {
    if (memory) pool->give_back(std::move(memory));
  }

  std::shared_ptr<DrawMemory> pool;
  std::unique_ptr<DeviceMemory> memory;
  DrawRow row;                // its pointers and penalties
  int32_t output_length = 0;  // the output that `seen` and `output` hold
};

// Makes the rows of draws from sequences.
class DrawRows {
 public:
  DrawRows(Backend& backend, Queue& queue, int vocab);

  // Draws from `s` at `position`, whose last token is `last_token` of the step. Everything but where logits, scratch
  // and results lie. Uploads what the device does not have yet.
  DrawRow make(SampledSequence& s, int32_t position, int32_t last_token);

 private:
  void upload(SampledSequence& s);

  Backend& backend_;
  Queue& queue_;
  int vocab_;
  std::shared_ptr<DrawMemory> memory_;
  std::vector<std::byte> host_;
};

}  // namespace octavo
