#pragma once
// How many partitions of a row one block of attention takes: who computes what, never a result.
#include <algorithm>
#include <cstdint>

namespace octavo::cuda {

struct AttentionLoad {
  int partitions = 0;       // of the longest row or prefix
  int64_t blocks = 0;       // when nothing is cut
  int64_t slots = 0;        // blocks that the device holds at once
  double state_cost = 0.0;  // bytes of a partition's states, written and read again, over those of its keys and values
};

// The cheapest piece, by a model in which the unit of time is that of one partition of every block that the device
// holds: half as many blocks keep the memory busy, a block takes kBegin until its first keys are there, and what is cut
// takes another kernel and its states. Each partition behind the first piece leaves one (count_states).
inline int partitions_per_block(const AttentionLoad& load) {
  constexpr double kBegin = 0.5, kCombine = 1.0;
  int best = load.partitions;
  double least = 0.0;
  for (int pieces = 1; pieces <= load.partitions; pieces += 1 + pieces / 8) {
    const int piece = (load.partitions + pieces - 1) / pieces;
    const int64_t blocks = load.blocks * ((load.partitions + piece - 1) / piece);
    const double share = static_cast<double>(blocks) / static_cast<double>(load.slots);
    const auto waves = static_cast<double>((blocks + load.slots - 1) / load.slots);
    double cost = piece * (share > 1.0 ? waves : std::max(share, 0.5)) + waves * kBegin;
    if (pieces > 1) {
      const double states =
          static_cast<double>(load.blocks) * (load.partitions - piece) / static_cast<double>(load.slots);
      cost += kCombine + states * load.state_cost;
    }
    if (pieces == 1 || cost < least) {
      least = cost;
      best = piece;
    }
  }
  return best;
}

}  // namespace octavo::cuda
