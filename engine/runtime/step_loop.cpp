#include "runtime/step_loop.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/clock.h"
#include "base/format.h"
#include "runtime/step_isolation.h"

namespace octavo {

StepLoop::StepLoop(SchedulerConfig config, Executor& executor, const TokenTable& table,
                   std::vector<int32_t> eos_token_ids)
    : scheduler_(std::move(config)), executor_(executor), table_(table), eos_(std::move(eos_token_ids)) {}

void StepLoop::add(RequestId id, std::vector<SeqId> seqs, SubmitRequest submit, int32_t max_new_tokens,
                   double arrival) {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->params = submit.params;
  request->channel = std::move(submit.channel);
  request->prompt_tokens = static_cast<int32_t>(submit.prompt.size());
  request->max_new_tokens = max_new_tokens;
  request->times.arrival = arrival;
  request->prompt_logprobs_due = submit.params->prompt_logprobs >= 0;

  std::shared_ptr<const StopStrings> stops;
  if (!submit.params->stop.empty()) stops = std::make_shared<StopStrings>(submit.params->stop);
  request->choices.reserve(seqs.size());
  for (size_t i = 0; i < seqs.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    request->choices.emplace_back(seqs[i], index, *request->params, &table_, stops);
    executor_.add_sequence(seqs[i], request->params, submit.prompt, static_cast<uint32_t>(index));
    owners_[seqs[i]] = {request.get(), index};
  }

  RequestSpec spec;
  spec.id = id;
  spec.seqs = std::move(seqs);
  spec.prompt = std::move(submit.prompt);
  spec.prefix_namespace = submit.prefix_namespace;
  spec.priority = submit.priority;
  spec.max_new_tokens = max_new_tokens;
  spec.prompt_logits = request->prompt_logprobs_due;
  requests_.emplace(id, std::move(request));
  scheduler_.add(std::move(spec));
}

void StepLoop::cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  scheduler_.cancel(id);
  end_request(*it->second, Finish::kAbort, nullptr);
  publish();
}

void StepLoop::cancel_channel(const Channel* channel) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_)
    if (request->channel.get() == channel) ids.push_back(id);
  for (RequestId id : ids) cancel(id);
}

void StepLoop::cancel_all() {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.push_back(id);
  for (RequestId id : ids) cancel(id);
}

bool StepLoop::step() {
  const double begin = monotonic_seconds();
  const StepPlan* plan = scheduler_.plan();
  const bool ended_some = take_events();
  if (!plan) {
    publish();
    return ended_some;
  }
  const double planned = monotonic_seconds();
  const StepResult* result = nullptr;
  try {
    executor_.submit(*plan, 0);
    result = &executor_.wait(0);
  } catch (const Error& e) {
    fail_step(*plan, Refusal{e.code(), e.param(), e.what(), 0, 0});
  } catch (const std::exception& e) {
    fail_step(*plan, Refusal{ErrorCode::kInternal, "step", cat("a step failed: ", e.what()), 0, 0});
  }
  const double executed = monotonic_seconds();
  stats_.last_step = executed;
  ++stats_.steps;
  if (result) {
    unexplained_failures_ = 0;
    const size_t tokens = plan->tokens.size();
    stats_.step_tokens += static_cast<int64_t>(tokens);
    const size_t size = tokens > 1 ? std::bit_width(tokens - 1) : 0;
    ++stats_.step_sizes[std::min(size, stats_.step_sizes.size() - 1)];
    commit(*plan, *result);
  }
  publish();
  stats_.execute_ns += static_cast<int64_t>((executed - planned) * 1e9);
  stats_.host_ns += static_cast<int64_t>((planned - begin + monotonic_seconds() - executed) * 1e9);
  return true;
}

bool StepLoop::take_events() {
  for (const Admission& a : scheduler_.take_admissions()) {
    const auto it = requests_.find(a.id);
    if (it == requests_.end()) continue;
    it->second->cached_tokens = a.cached_tokens;
    it->second->times.scheduled = monotonic_seconds();
    stats_.prompt_tokens += it->second->prompt_tokens;
  }
  const auto failures = scheduler_.take_failures();
  for (const RequestFailure& f : failures) {
    const auto it = requests_.find(f.id);
    if (it != requests_.end()) end_request(*it->second, Finish::kError, &f.why);
  }
  return !failures.empty();
}

void StepLoop::commit(const StepPlan& plan, const StepResult& result) {
  const double now = monotonic_seconds();
  outcome_.outcomes.clear();
  outcome_.faults.clear();
  for (const PromptScores& scores : result.prompt_scores) {
    const auto owner = owners_.find(scores.seq);
    if (owner == owners_.end()) continue;
    Request& request = *owner->second.request;
    if (scores.status != SampleStatus::kOk) {
      fault(request, scores.seq, scores.status, scores.first_pos);
      continue;
    }
    auto& all = request.prompt_logprobs;
    const size_t first = static_cast<size_t>(scores.first_pos) - 1;
    if (all.size() < first + scores.scores.size()) all.resize(first + scores.scores.size());
    std::copy(scores.scores.begin(), scores.scores.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
  }
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const SampleRow& sample = plan.samples[i];
    const SampleOutput& output = result.samples[i];
    const auto owner = owners_.find(sample.state);
    if (owner == owners_.end()) continue;  // cancelled while the step ran
    Request& request = *owner->second.request;
    Choice& choice = request.choices[owner->second.choice];
    if (output.status != SampleStatus::kOk) {
      fault(request, sample.state, output.status, sample.position);
      continue;
    }
    executor_.accept(sample.state, output.token);
    const bool last = choice.push(output.token, output.logprobs, request.max_new_tokens, eos_);
    outcome_.outcomes.push_back({sample.state, sample.state, output.token, last});
    ++stats_.generation_tokens;
    if (request.times.first_token == 0) request.times.first_token = now;
    request.times.last_token = now;
    tell(request);
    if (last) {
      executor_.drop_sequence(sample.state);
      owners_.erase(sample.state);
      if (request.live_choices() == 0) requests_.erase(request.id);
    }
  }
  scheduler_.commit(plan.step, outcome_);
}

// One request's own fault: it ends, the company's step counts.
void StepLoop::fault(Request& request, SeqId seq, SampleStatus status, int32_t position) {
  outcome_.faults.push_back({seq});
  Refusal why{ErrorCode::kInternal, "logits", cat("the model's logits for position ", position, " are not finite"),
              position, 0};
  if (status == SampleStatus::kAllMasked) {
    why = {ErrorCode::kInvalidArgument, "allowed_token_ids",
           cat("no token is left at position ", position,
               ": allowed_token_ids, bad_words and min_tokens exclude all of them"),
           position, 0};
  } else {
    ++stats_.non_finite_rows;
  }
  end_request(request, Finish::kError, &why);
}

// A step threw: it is undone, and the requests that make it throw on their own are ended with its cause. When none
// does, the step is tried again; a fault that stays ends every request in it, so that the engine never spins.
void StepLoop::fail_step(const StepPlan& plan, const Refusal& why) {
  ++stats_.failed_steps;
  std::vector<SeqId> guilty = find_guilty(executor_, plan);
  if (guilty.empty() && ++unexplained_failures_ > kRetries)
    for (const PlanRow& row : plan.rows) guilty.push_back(row.seq);
  scheduler_.rollback(plan.step);
  for (SeqId seq : guilty) {
    const auto owner = owners_.find(seq);
    if (owner == owners_.end()) continue;
    Request& request = *owner->second.request;
    scheduler_.cancel(request.id);
    end_request(request, Finish::kError, &why);
  }
}

void StepLoop::end_request(Request& request, Finish why, const Refusal* error) {
  for (Choice& choice : request.choices) {
    if (choice.finish() != Finish::kNone) continue;
    choice.end(why);
    executor_.drop_sequence(choice.seq());
    owners_.erase(choice.seq());
  }
  tell(request);
  if (error) {
    for (Delta& delta : outgoing(request.channel))
      if (delta.id == request.id && delta.finish == Finish::kError) delta.error = *error;
  }
  requests_.erase(request.id);
}

void StepLoop::tell(Request& request) {
  for (Choice& choice : request.choices) {
    Delta delta;
    if (!choice.take(delta)) continue;
    delta.id = request.id;
    delta.prompt_tokens = request.prompt_tokens;
    delta.cached_tokens = request.cached_tokens;
    delta.times = request.times;
    if (request.prompt_logprobs_due) {
      delta.has_prompt_logprobs = true;
      delta.prompt_logprobs = std::move(request.prompt_logprobs);
      request.prompt_logprobs_due = false;
    }
    outgoing(request.channel).push_back(std::move(delta));
  }
}

std::vector<Delta>& StepLoop::outgoing(const std::shared_ptr<Channel>& channel) {
  for (Outgoing& o : outgoing_)
    if (o.channel == channel) return o.deltas;
  outgoing_.push_back({channel, {}});
  return outgoing_.back().deltas;
}

void StepLoop::publish() {
  for (Outgoing& o : outgoing_) o.channel->publish(o.deltas);
  outgoing_.clear();
}

LoopStats StepLoop::stats() const {
  LoopStats out = stats_;
  out.sched = scheduler_.stats();
  return out;
}

void StepLoop::audit() const { scheduler_.audit(); }

}  // namespace octavo
