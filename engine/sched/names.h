#pragma once
#include <array>
#include <cstdint>

#include "sched/decision_log.h"
#include "sched/snapshot.h"

namespace octavo {

const char* name_of(WaitReason why);
const char* name_of(RunReason why);

enum class ValueType : uint8_t { kInteger, kUnsigned, kFlag, kWaitReason };

// What the values of a decision mean; the first without a name ends them.
struct DecisionShape {
  struct Value {
    const char* name = nullptr;
    ValueType type = ValueType::kInteger;
  };
  const char* kind;
  std::array<Value, Decision::kValues> values;
};

const DecisionShape& shape_of(DecisionKind kind);

}  // namespace octavo
