// Asks for what the commit of a step reads, for all that it sampled at once: the step has driven it out of the caches.
#include "base/prefetch.h"

#include <algorithm>

#include "runtime/step_loop.h"

namespace octavo {

void StepLoop::prefetch(const StepPlan& plan) const {
  using octavo::prefetch;
  const auto each_owner = [&](auto visit) {
    for (const SampleRow& sample : plan.samples) {
      if (const Owner* owner = owners_.find(sample.state)) visit(*owner->request, static_cast<size_t>(owner->index));
    }
  };
  const auto each_choice = [&](auto visit) {
    each_owner([&](const Request& request, size_t index) {
      if (!request.beams) visit(request.choices[index]);
    });
  };
  // What holds an address comes before what is there.
  for (const SampleRow& sample : plan.samples) owners_.prefetch(sample.state);
  each_owner([](const Request& request, size_t) { prefetch(request); });
  prefetch(spare_.data(), std::min(spare_.capacity(), plan.samples.size()) * sizeof(Delta));
  each_choice([](const Choice& choice) { prefetch(choice); });
  each_choice([](const Choice& choice) { choice.prefetch_tokens(); });
}

}  // namespace octavo
