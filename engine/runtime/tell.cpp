// What requests are told. What finds no memory is told later.
#include <algorithm>
#include <utility>

#include "base/reserve.h"
#include "runtime/step_loop.h"

namespace octavo {

void StepLoop::finish(Request& request) {
  request.over = true;
  over_.push_back(&request);
}

// What a request that has ended leaves: its choices may be forked.
void StepLoop::keep_histories(Request& request) {
  for (size_t i = 0; i < request.choices.size(); ++i) {
    std::vector<int32_t> tokens = request.choices[i].take_history();
    if (tokens.empty()) continue;
    histories_.keep(request.id, static_cast<int32_t>(i),
                    {std::move(tokens), request.output_start, request.params, request.prefix_namespace,
                     request.shared_tokens, request.tenant, request.priority, request.next_choice});
  }
}

// May be called again when it throws: what has been told then is not told twice.
void StepLoop::tell_end(Request& request) {
  if (request.end != Finish::kNone) {
    for (Choice& choice : request.choices) choice.end(request.end);
  }
  if (request.ranked && request.end != Finish::kNone) {
    std::ranges::stable_partition(request.choices, [&](const Choice& c) { return c.finish() == request.end; });
    request.keep_first();
  } else if (request.ranked) {
    request.keep_best();
  }
  for (Choice& choice : request.choices) tell(request, choice);
}

// Changes nothing when it throws.
void StepLoop::tell(Request& request, Choice& choice) {
  if (!choice.has_news()) return;
  std::vector<Delta>& deltas = outgoing(request.channel);
  reserve_more(deltas, 1);
  Delta delta;
  choice.take(delta);
  if (delta.finish == Finish::kError) delta.error = request.error;
  delta.id = request.id;
  delta.prompt_tokens = request.prompt_tokens;
  delta.cached_tokens = request.cached_tokens;
  delta.times = request.times;
  if (request.prompt_logprobs_due) {
    delta.has_prompt_logprobs = true;
    delta.prompt_logprobs = std::move(request.prompt_logprobs);
    request.prompt_logprobs_due = false;
  }
  deltas.push_back(std::move(delta));
}

std::vector<Delta>& StepLoop::outgoing(const std::shared_ptr<Channel>& channel) {
  for (Outgoing& o : outgoing_)
    if (o.channel == channel) return o.deltas;
  outgoing_.push_back({channel, std::move(spare_)});
  outgoing_.back().deltas.reserve(step_samples_);  // as many as a step usually tells
  return outgoing_.back().deltas;
}

void StepLoop::publish() {
  failures_.of([&] {
    const Trace::Span span(phases_.publish);
    std::erase_if(over_, [&](Request* request) {
      if (failures_.of([&] { tell_end(*request); })) return false;
      failures_.of([&] { keep_histories(*request); });  // without memory for them they cannot be forked
      requests_.erase(request->id);
      return true;
    });
    std::erase_if(outgoing_, [&](Outgoing& o) {
      if (failures_.of([&] { o.channel->publish(o.deltas); })) return false;
      spare_ = std::move(o.deltas);
      return true;
    });
  });
}

}  // namespace octavo
