#pragma once
#include "bind.h"
#include "sched/scheduler.h"

namespace octavo {

nb::list decisions_list(const std::vector<Decision>& decisions);
const char* reason_name(WaitReason why);

// As a dict of lists; the map of a group as pairs (holders, blocks).
nb::dict snapshot_dict(const SchedulerSnapshot& snapshot);

}  // namespace octavo
