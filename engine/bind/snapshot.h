#pragma once
#include "bind.h"
#include "sched/scheduler.h"

namespace octavo {

// The last decisions, oldest first, as dicts.
nb::list decisions_list(const DecisionLog& log);
// The arguments of a Scheduler that decides in the same way.
nb::dict scheduler_config_dict(const SchedulerConfig& config);

// As a dict of lists; the map of a group as pairs (holders, blocks).
nb::dict snapshot_dict(const SchedulerSnapshot& snapshot);

}  // namespace octavo
