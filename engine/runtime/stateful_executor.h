#pragma once
#include <utility>

#include "runtime/executor.h"
#include "runtime/sequence_states.h"

namespace octavo {

// What executors that sample have in common: the sequences.
class StatefulExecutor : public Executor {
 public:
  void add_sequence(SeqId seq, std::shared_ptr<const SamplingParams> params, std::span<const int32_t> history,
                    size_t num_output, uint32_t choice) final {
    states_.add(seq, std::move(params), history, num_output, choice);
  }
  void fork_sequence(SeqId parent, SeqId child, uint32_t choice) final { states_.fork(parent, child, choice); }
  bool accept(SeqId seq, int32_t token) final { return states_.accept(seq, token); }
  void list_forced(SeqId seq, std::vector<int32_t>& tokens) final { states_.list_forced(seq, tokens); }
  void drop_sequence(SeqId seq) final { states_.drop(seq); }

 protected:
  explicit StatefulExecutor(int vocab) : states_(vocab) {}
  SequenceStates states_;
};

}  // namespace octavo
