#pragma once
// Barriers of a block and what the lanes of a warp do together.
#include "backend/cuda/emulator/block.h"

namespace octavo::emulator {

inline BarrierVotes block_barrier(int value, Site site) { return Block::current().barrier(value, site); }

// Each lane takes the value of the lane that it names.
template <class T>
T shuffle(unsigned mask, T value, unsigned source, Site site) {
  struct Operand {
    T value;
    unsigned source;
  };
  const Resolve resolve = [](Exchange* const* lanes, unsigned lane_mask) {
    for (unsigned n = 0; n < kWarp; ++n) {
      if (!(lane_mask >> n & 1)) continue;
      Operand own, taken;
      std::memcpy(&own, lanes[n]->operand, sizeof own);
      if (!(lane_mask >> own.source & 1)) Block::current().fail("a shuffle reads a lane that is not in its mask");
      std::memcpy(&taken, lanes[own.source]->operand, sizeof taken);
      std::memcpy(lanes[n]->result, &taken.value, sizeof(T));
    }
  };
  return Block::current().collective<T>(mask, Operand{value, source}, resolve, site);
}

inline unsigned lane_in_warp() { return Block::current().lane().index % kWarp; }

// One result for all lanes, folded in the order of the lanes.
template <class T, class Result, class Fold>
Result fold_lanes(unsigned mask, T value, Fold, Site site) {
  const Resolve resolve = [](Exchange* const* lanes, unsigned lane_mask) {
    Result result{};
    bool first = true;
    for (unsigned n = 0; n < kWarp; ++n) {
      if (!(lane_mask >> n & 1)) continue;
      T operand;
      std::memcpy(&operand, lanes[n]->operand, sizeof operand);
      Fold{}(result, operand, n, first);
      first = false;
    }
    for (unsigned n = 0; n < kWarp; ++n) {
      if (lane_mask >> n & 1) std::memcpy(lanes[n]->result, &result, sizeof result);
    }
  };
  return Block::current().collective<Result>(mask, value, resolve, site);
}

struct Ballot {
  void operator()(unsigned& bits, int vote, unsigned lane, bool) const { bits |= vote ? 1u << lane : 0u; }
};
struct Sum {
  template <class T>
  void operator()(T& total, T value, unsigned, bool) const {
    total = static_cast<T>(static_cast<unsigned>(total) + static_cast<unsigned>(value));
  }
};
struct Least {
  template <class T>
  void operator()(T& least, T value, unsigned, bool first) const {
    least = first || value < least ? value : least;
  }
};
struct Greatest {
  template <class T>
  void operator()(T& greatest, T value, unsigned, bool first) const {
    greatest = first || value > greatest ? value : greatest;
  }
};
struct AllBits {
  void operator()(unsigned& bits, unsigned value, unsigned, bool first) const { bits = first ? value : bits & value; }
};
struct AnyBits {
  void operator()(unsigned& bits, unsigned value, unsigned, bool) const { bits |= value; }
};
struct OddBits {
  void operator()(unsigned& bits, unsigned value, unsigned, bool) const { bits ^= value; }
};

}  // namespace octavo::emulator

inline void __syncthreads(OCTAVO_SITE_PARAMS) { octavo::emulator::block_barrier(0, OCTAVO_SITE); }
inline int __syncthreads_or(int value, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::block_barrier(value, OCTAVO_SITE).any;
}
inline int __syncthreads_and(int value, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::block_barrier(value, OCTAVO_SITE).all;
}
inline int __syncthreads_count(int value, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::block_barrier(value, OCTAVO_SITE).count;
}
inline unsigned __ballot_sync(unsigned mask, int vote, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::fold_lanes<int, unsigned>(mask, vote, octavo::emulator::Ballot{}, OCTAVO_SITE);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, OCTAVO_SITE_PARAMS) {
  octavo::emulator::fold_lanes<int, unsigned>(mask, 0, octavo::emulator::Ballot{}, OCTAVO_SITE);
}
inline int __any_sync(unsigned mask, int vote, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::fold_lanes<int, unsigned>(mask, vote, octavo::emulator::Ballot{}, OCTAVO_SITE) != 0;
}
inline int __all_sync(unsigned mask, int vote, OCTAVO_SITE_PARAMS) {
  return octavo::emulator::fold_lanes<int, unsigned>(mask, vote, octavo::emulator::Ballot{}, OCTAVO_SITE) == mask;
}

#define OCTAVO_REDUCE(name, type, fold)                                                                  \
  inline type __reduce_##name##_sync(unsigned mask, type value, OCTAVO_SITE_PARAMS) {                    \
    return octavo::emulator::fold_lanes<type, type>(mask, value, octavo::emulator::fold{}, OCTAVO_SITE); \
  }
OCTAVO_REDUCE(add, int, Sum)
OCTAVO_REDUCE(add, unsigned, Sum)
OCTAVO_REDUCE(min, int, Least)
OCTAVO_REDUCE(min, unsigned, Least)
OCTAVO_REDUCE(max, int, Greatest)
OCTAVO_REDUCE(max, unsigned, Greatest)
OCTAVO_REDUCE(and, unsigned, AllBits)
OCTAVO_REDUCE(or, unsigned, AnyBits)
OCTAVO_REDUCE(xor, unsigned, OddBits)
#undef OCTAVO_REDUCE

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, OCTAVO_SITE_PARAMS) {
  const unsigned lane = octavo::emulator::lane_in_warp(), group = lane & ~(static_cast<unsigned>(width) - 1);
  return octavo::emulator::shuffle(mask, value, group | (static_cast<unsigned>(source) & (width - 1)), OCTAVO_SITE);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, OCTAVO_SITE_PARAMS) {
  const unsigned lane = octavo::emulator::lane_in_warp(), source = lane ^ static_cast<unsigned>(lane_mask);
  const bool inside = source / width <= lane / width;
  return octavo::emulator::shuffle(mask, value, inside ? source : lane, OCTAVO_SITE);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, OCTAVO_SITE_PARAMS) {
  const unsigned lane = octavo::emulator::lane_in_warp();
  const bool inside = lane % width + delta < static_cast<unsigned>(width);
  return octavo::emulator::shuffle(mask, value, inside ? lane + delta : lane, OCTAVO_SITE);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, OCTAVO_SITE_PARAMS) {
  const unsigned lane = octavo::emulator::lane_in_warp();
  return octavo::emulator::shuffle(mask, value, lane % width >= delta ? lane - delta : lane, OCTAVO_SITE);
}
