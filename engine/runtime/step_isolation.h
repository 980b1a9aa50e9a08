#pragma once
#include <vector>

#include "runtime/executor.h"

namespace octavo {

// Which sequences make `plan` fail. The plan has thrown as a whole; here its rows are executed in halves until those
// that throw stand alone. Executing rows again is harmless: the same bits go into the same slots, and nothing counts
// before the commit. `guilty` stays empty when no row fails on its own (the fault was transient or belongs to all); it
// has room for a sequence per row.
void find_guilty(Executor& executor, const StepPlan& plan, std::vector<SeqId>& guilty);

}  // namespace octavo
