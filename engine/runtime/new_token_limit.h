#pragma once
#include <algorithm>
#include <cstdint>

#include "sched/scheduler.h"

namespace octavo {

// The tokens that each of `width` sequences may have after a prompt of `prompt` tokens: to the end of the window and,
// were the request alone in it, of the pool, where the sequences share the prompt's full blocks.
inline int32_t new_token_limit(const SchedulerConfig& config, int64_t prompt, int32_t width, int32_t max_tokens) {
  int64_t room = config.max_model_len - prompt;
  for (const CacheGroup& group : config.groups) {
    if (group.retain == RetainBlocks::kWindow) continue;
    const int64_t shared = prompt / config.block_size;
    room = std::min(room, (group.num_blocks - shared) / width * config.block_size - prompt % config.block_size);
  }
  return static_cast<int32_t>(std::min<int64_t>(max_tokens, room));
}

}  // namespace octavo
