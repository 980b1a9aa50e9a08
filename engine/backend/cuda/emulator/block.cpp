#include "backend/cuda/emulator/block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

// Static shared memory lies in a section of its own, so that it can be poisoned before each block.
extern "C" {
extern std::byte __start_octavo_shared[] __attribute__((weak, visibility("hidden")));
extern std::byte __stop_octavo_shared[] __attribute__((weak, visibility("hidden")));
}

namespace octavo::emulator {
namespace {

constexpr int kPoison = 0xff;  // NaN in every floating-point type, -1 as an integer

const char* place(Lane::State state) {
  switch (state) {
    case Lane::State::kReady:
      return "ready";
    case Lane::State::kAtBarrier:
      return "at __syncthreads";
    case Lane::State::kInCollective:
      return "in a warp collective";
    case Lane::State::kDone:
      return "exited";
  }
  return "?";
}

void land(const AsyncCopy& copy) {
  std::memcpy(copy.to, copy.from, copy.filled);
  std::memset(static_cast<std::byte*>(copy.to) + copy.filled, 0, copy.bytes - copy.filled);
}

}  // namespace

Block& Block::current() {
  static thread_local Block block;
  return block;
}

void Block::run_grid(const Shape& shape, const std::function<void()>& body) {
  if (lane_) fail("a kernel launched a kernel");
  shape_ = shape;
  body_ = &body;
  threads_ = shape.block.x * shape.block.y * shape.block.z;
  random_ = 0x9e3779b97f4a7c15ull * (shape.seed + 1);
  stacks_.reserve(threads_);
  while (lanes_.size() < threads_) lanes_.push_back(std::make_unique<Lane>());
  // Of exactly this size, so that the address sanitizer sees what runs past it.
  void* shared = nullptr;
  if (posix_memalign(&shared, 128, std::max<size_t>(shape.shared_bytes, 1)) != 0) fail("no host memory");
  dynamic_.reset(static_cast<std::byte*>(shared));
  const unsigned blocks = shape.grid.x * shape.grid.y * shape.grid.z;
  std::vector<unsigned> order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  shuffle(order);
  for (unsigned b : order) {
    index_ = dim3(b % shape.grid.x, b / shape.grid.x % shape.grid.y, b / (shape.grid.x * shape.grid.y));
    run_block();
  }
  dynamic_.reset();
}

void Block::run_block() {
  std::memset(dynamic_.get(), kPoison, shape_.shared_bytes);
  if (__start_octavo_shared) std::memset(__start_octavo_shared, kPoison, __stop_octavo_shared - __start_octavo_shared);
  const dim3& block = shape_.block;
  for (unsigned i = 0; i < threads_; ++i) {
    Lane& lane = *lanes_[i];
    lane.state = Lane::State::kReady;
    lane.index = i;
    lane.thread = dim3(i % block.x, i / block.x % block.y, i / (block.x * block.y));
    lane.copies.clear();
    lane.open_copies.clear();
    lane.fiber.start(stacks_.stack(i), FiberStacks::kBytes, &Block::lane_main, &lane);
  }
  done_ = 0;
  warp_order_.resize((threads_ + kWarp - 1) / kWarp);
  std::iota(warp_order_.begin(), warp_order_.end(), 0u);
  while (done_ < threads_) {
    shuffle(warp_order_);
    bool progress = false;
    for (unsigned warp : warp_order_) {
      // Some warps run ahead of the others, up to the barrier.
      while (run_warp(warp)) {
        progress = true;
        if (shape_.seed && random(4) == 0) break;
      }
    }
    if (!progress && done_ < threads_ && !release_barrier()) fail_stuck();
  }
  lane_ = nullptr;
}

// Runs every ready lane up to its next meeting, then lets one complete collective go. False: nothing could be done.
bool Block::run_warp(unsigned warp) {
  const unsigned first = warp * kWarp, last = std::min(first + kWarp, threads_);
  lane_order_.resize(last - first);
  std::iota(lane_order_.begin(), lane_order_.end(), first);
  shuffle(lane_order_);
  bool ran = false;
  for (unsigned i : lane_order_) {
    if (lanes_[i]->state != Lane::State::kReady) continue;
    run_lane(*lanes_[i]);
    ran = true;
  }
  return release_collective(first, last) || ran;
}

void Block::run_lane(Lane& lane) {
  lane_ = &lane;
  host_.switch_to(lane.fiber);
  if (lane.state == Lane::State::kDone) ++done_;
}

bool Block::release_collective(unsigned first, unsigned last) {
  for (unsigned i = first; i < last; ++i) {
    const Lane& leader = *lanes_[i];
    if (leader.state != Lane::State::kInCollective) continue;
    Exchange* exchanges[kWarp] = {};
    bool complete = true;
    for (unsigned n = 0; n < kWarp; ++n) {
      if (!(leader.mask >> n & 1)) continue;
      if (first + n >= last) {
        lane_ = lanes_[i].get();
        fail("the mask of a warp collective names lanes that the block does not have");
      }
      Lane& lane = *lanes_[first + n];
      if (lane.state == Lane::State::kDone) {
        lane_ = lanes_[i].get();
        fail("a warp collective waits for a lane that has exited");
      }
      if (lane.state != Lane::State::kInCollective) {
        complete = false;
        continue;
      }
      if (lane.mask != leader.mask || lane.resolve != leader.resolve || !(lane.site == leader.site)) {
        complete = false;
        continue;
      }
      exchanges[n] = &lane.exchange;
    }
    if (!complete) continue;
    lane_ = lanes_[i].get();
    leader.resolve(exchanges, leader.mask);
    for (unsigned n = 0; n < kWarp; ++n) {
      if (leader.mask >> n & 1) lanes_[first + n]->state = Lane::State::kReady;
    }
    return true;
  }
  return false;
}

bool Block::release_barrier() {
  const Lane& leader = *lanes_[0];
  votes_ = {};
  for (unsigned i = 0; i < threads_; ++i) {
    Lane& lane = *lanes_[i];
    if (lane.state != Lane::State::kAtBarrier || !(lane.site == leader.site)) return false;
    votes_.any |= lane.value != 0;
    votes_.all &= lane.value != 0;
    votes_.count += lane.value != 0;
  }
  for (unsigned i = 0; i < threads_; ++i) lanes_[i]->state = Lane::State::kReady;
  return true;
}

BarrierVotes Block::barrier(int value, Site site) {
  Lane& self = *lane_;
  self.state = Lane::State::kAtBarrier;
  self.value = value;
  self.site = site;
  leave();
  return votes_;
}

void Block::meet(unsigned mask, Resolve resolve, Site site) {
  Lane& self = *lane_;
  if (!(mask >> (self.index % kWarp) & 1)) fail("a lane calls a warp collective whose mask does not name it");
  self.state = Lane::State::kInCollective;
  self.mask = mask;
  self.resolve = resolve;
  self.site = site;
  leave();
}

void Block::leave() { lane_->fiber.switch_to(host_); }

void Block::lane_main(void* argument) {
  Block& block = current();
  (*block.body_)();
  Lane& self = *static_cast<Lane*>(argument);
  block.wait_copies(0);
  self.state = Lane::State::kDone;
  self.fiber.switch_to(block.host_, true);
}

void Block::copy_async(const AsyncCopy& copy) {
  if (shape_.seed % 2) {
    land(copy);
  } else {
    lane_->open_copies.push_back(copy);
  }
}

void Block::commit_copies() {
  lane_->copies.push_back(std::move(lane_->open_copies));
  lane_->open_copies.clear();
}

void Block::wait_copies(size_t groups_left) {
  auto& groups = lane_->copies;
  const size_t landing = groups.size() > groups_left ? groups.size() - groups_left : 0;
  for (size_t g = 0; g < landing; ++g) std::for_each(groups[g].begin(), groups[g].end(), land);
  groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(landing));
}

unsigned Block::random(unsigned below) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return static_cast<unsigned>((random_ >> 32) % below);
}

// Seed 0 keeps the natural order.
void Block::shuffle(std::vector<unsigned>& order) {
  if (shape_.seed == 0) return;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random(static_cast<unsigned>(i))]);
}

void Block::fail(const char* what) const {
  std::fprintf(stderr, "octavo CUDA emulator: %s: %s", shape_.kernel, what);
  if (lane_) {
    std::fprintf(stderr, " (block %u,%u,%u, thread %u,%u,%u, last meeting at %s:%d)", index_.x, index_.y, index_.z,
                 lane_->thread.x, lane_->thread.y, lane_->thread.z, lane_->site.file, lane_->site.line);
  }
  std::fputc('\n', stderr);
  std::abort();
}

// Every lane waits for something that will not come: says who waits where.
void Block::fail_stuck() {
  for (unsigned i = 0; i < threads_;) {
    const Lane& lane = *lanes_[i];
    unsigned end = i + 1;
    while (end < threads_ && lanes_[end]->state == lane.state && lanes_[end]->site == lane.site) ++end;
    std::fprintf(stderr, "  threads %u to %u: %s, last meeting at %s:%d\n", i, end - 1, place(lane.state),
                 lane.site.file, lane.site.line);
    i = end;
  }
  lane_ = nullptr;
  fail("divergence: threads wait for others that never arrive");
}

}  // namespace octavo::emulator
