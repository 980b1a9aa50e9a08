#pragma once
#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace octavo {

// Why a waiting request does not run, as of the last plan.
enum class WaitReason : uint8_t {
  kNextStep,       // it came after the last plan and may enter the next
  kNoBlocks,       // its prompt does not fit beside what the running requests still need
  kTokenBudget,    // the others filled the step
  kSequenceLimit,  // as many sequences run as may
  kPrefixLeader,   // a running request computes what both begin with
  kBehind,         // an earlier request of its tenant waits, for one of these reasons
  kTenantLimit,    // as many sequences of its tenant run as may
  kBehindShare,    // it is another tenant's turn, whose request waits for one of these reasons
};

// What keeps a running request from going as fast as it could, as of the last step.
enum class RunReason : uint8_t {
  kOnTime,         // nothing
  kTokenBudget,    // the others took the step's tokens, or so many that its prompt got fewer than there was room for
  kNoBlocks,       // there is no block for its next tokens
  kRecomputing,    // it was preempted: what it had computed is computed again
  kGivingWay,      // it is about to be preempted for another's sake
  kGrammar,        // the step waited for the mask of its grammar
  kOthersGrammar,  // the step waited for the mask of another's
};

struct WaitingRequest {
  RequestId id = 0;
  int32_t prompt_tokens = 0;
  int32_t seqs = 0;
  uint64_t tenant = 0;
  int32_t priority = 0;
  bool preempted = false;
  WaitReason why = WaitReason::kNextStep;
  RequestId leader = 0;  // kPrefixLeader: the request that it waits for
};

struct RunningRequest {
  RequestId id = 0;
  int32_t prompt_tokens = 0;
  int32_t seqs = 0;
  uint64_t tenant = 0;
  int32_t priority = 0;
  int64_t tokens = 0;      // of all branches, each with its prompt
  int64_t computed = 0;    // of them
  int64_t blocks = 0;      // entries in its tables; a block that branches share counts for each
  bool preempted = false;  // it ran before, was preempted and runs again
  RunReason why = RunReason::kOnTime;
};

// Neighbouring blocks in one state: kFree, kCached, or the number of table entries that hold each of them.
struct BlockRun {
  static constexpr int32_t kFree = 0;
  static constexpr int32_t kCached = -1;
  int32_t holders = kFree;
  int32_t blocks = 0;
};

struct CacheGroupSnapshot {
  int num_blocks = 0;
  int window = 0;  // 0: every position is kept
  int free_blocks = 0;
  int cached_blocks = 0;
  int live_blocks = 0;
  int64_t table_entries = 0;  // of all sequences: what the live blocks would be if nobody shared
  int64_t table_tokens = 0;   // positions that these tables cover
  int64_t live_tokens = 0;    // slots of live blocks that hold a token, each once
  std::vector<BlockRun> map;  // in the order of the block ids
};

// What the cache holds and who waits for it, integers only. No token of a prompt is in it.
struct SchedulerSnapshot {
  int block_size = 0;
  std::vector<CacheGroupSnapshot> groups;
  std::vector<RunningRequest> running;  // most important first
  std::vector<WaitingRequest> waiting;  // in the order of admission
};

}  // namespace octavo
