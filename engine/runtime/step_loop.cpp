#include "runtime/step_loop.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/reserve.h"
#include "runtime/new_token_limit.h"

namespace octavo {

static SchedulerConfig with_depth(SchedulerConfig config, int depth) {
  config.depth = depth;
  return config;
}

StepLoop::StepLoop(SchedulerConfig config, Executor& executor, const TokenTable& table,
                   std::vector<int32_t> eos_token_ids, Trace* trace)
    : config_(with_depth(std::move(config), executor.slots())),
      scheduler_(config_),
      executor_(executor),
      table_(table),
      eos_(std::move(eos_token_ids)),
      histories_(static_cast<size_t>(config_.groups[0].num_blocks) * static_cast<size_t>(config_.block_size)) {
  under_way_.reserve(static_cast<size_t>(config_.depth));
  guilty_.reserve(static_cast<size_t>(config_.max_seqs));
  outcome_.faults.reserve(static_cast<size_t>(config_.max_seqs));
  if (trace) phases_ = {trace->phase("plan"), trace->phase("execute"), trace->phase("commit"), trace->phase("publish")};
}

void StepLoop::add(RequestId id, SubmitRequest& submit, double arrival) {
  if (const Reason why = failures_.persist([&] { enter(id, submit, arrival); })) refuse(id, submit, why, arrival);
}

// Changes nothing when it throws.
void StepLoop::enter(RequestId id, SubmitRequest& submit, double arrival) {
  const SamplingParams& params = *submit.params;
  const int32_t width = num_sequences(params);
  auto request = std::make_unique<Request>();
  request->id = id;
  request->params = submit.params;
  request->channel = submit.channel;
  request->prompt_tokens = static_cast<int32_t>(submit.prompt.size());
  request->max_new_tokens = new_token_limit(config_, request->prompt_tokens, width, params.max_tokens);
  request->times.arrival = arrival;
  request->prompt_logprobs_due = params.prompt_logprobs >= 0;
  request->prefix_namespace = submit.prefix_namespace;
  request->shared_tokens = submit.shared_tokens;
  request->tenant = submit.tenant;
  request->priority = submit.priority;
  request->output_start = submit.prompt.size() - submit.num_output;
  request->next_choice = submit.next_choice
                             ? submit.next_choice
                             : std::make_shared<uint32_t>(submit.first_choice + static_cast<uint32_t>(width));
  request->ranked = params.best_of > params.n;

  std::shared_ptr<const StopStrings> stops;
  if (!params.stop.empty()) stops = std::make_shared<StopStrings>(params.stop);
  const int32_t num_choices = params.beam_width > 0 ? params.n : width;
  request->choices.reserve(num_choices);
  for (int32_t i = 0; i < num_choices; ++i) request->choices.emplace_back(i, params, &table_, stops);

  RequestSpec spec;
  for (int32_t i = 0; i < width; ++i) spec.seqs.push_back(next_seq_++);
  std::shared_ptr<const SamplingParams> sampling = submit.params;
  if (submit.num_output > 0 && params.min_tokens > 0) {
    // The sampler counts the output before the fork too; min_tokens means new ones.
    auto longer = std::make_shared<SamplingParams>(params);
    longer->min_tokens += static_cast<int32_t>(submit.num_output);
    sampling = std::move(longer);
  }
  if (params.beam_width > 0) {
    request->seqs = {spec.seqs[0]};  // later beams are forks of it
    request->beams =
        std::make_unique<BeamSearch>(BeamOptions{params.beam_width, params.n, request->max_new_tokens,
                                                 params.length_penalty, params.early_stopping, params.stop_token_ids});
  } else {
    request->seqs = spec.seqs;
  }

  spec.id = id;
  spec.prefix_namespace = submit.prefix_namespace;
  spec.shared_tokens = submit.shared_tokens;
  spec.tenant = submit.tenant;
  spec.priority = submit.priority;
  spec.max_new_tokens = request->max_new_tokens;
  spec.prompt_logits = request->prompt_logprobs_due;
  spec.lockstep = executor_.needs_tokens(params);
  spec.source = submit.source;
  spec.prompt = std::move(submit.prompt);
  try {
    executor_.add_sequence(spec.seqs[0], std::move(sampling), spec.prompt, submit.num_output, submit.first_choice);
    for (size_t i = 1; i < request->seqs.size(); ++i)
      executor_.fork_sequence(spec.seqs[0], spec.seqs[i], submit.first_choice + static_cast<uint32_t>(i));
    for (size_t i = 0; i < request->seqs.size(); ++i)
      owners_.insert(spec.seqs[i], {request.get(), static_cast<int32_t>(i)});
    requests_.emplace(id, std::move(request));
    reserve_more(over_, requests_.size());
    scheduler_.add(spec);
  } catch (...) {
    requests_.erase(id);
    for (const SeqId seq : spec.seqs) drop_sequence(seq);
    submit.prompt = std::move(spec.prompt);
    throw;
  }
}

void StepLoop::cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  end_request(*it->second, Finish::kAbort, nullptr);
  scheduler_.cancel(id);
}

void StepLoop::cancel_channel(const Channel* channel) {
  for (const auto& [id, request] : requests_)
    if (request->channel.get() == channel) cancel(id);
}

void StepLoop::cancel_all() {
  for (const auto& [id, request] : requests_) cancel(id);
}

bool StepLoop::take_events() {
  for (const Admission& a : scheduler_.take_admissions()) {
    const auto it = requests_.find(a.id);
    if (it == requests_.end()) continue;
    it->second->cached_tokens = a.cached_tokens;
    it->second->times.scheduled = monotonic_seconds();
    stats_.prompt_tokens += it->second->prompt_tokens;
  }
  auto failures = scheduler_.take_failures();
  for (RequestFailure& f : failures) {
    const auto it = requests_.find(f.id);
    if (it == requests_.end()) continue;
    end_request(*it->second, Finish::kError, failures_.explain([&] { return std::move(f.why); }));
  }
  return !failures.empty();
}

// Throws only before anything has changed. What fails later is a request's own fault.
void StepLoop::commit(const StepPlan& plan, const StepResult& result) {
  const Trace::Span span(phases_.commit);
  prefetch(plan);
  const double now = monotonic_seconds();
  step_samples_ = plan.samples.size();
  outcome_.outcomes.clear();
  outcome_.faults.clear();
  outcome_.forced.clear();
  searching_.clear();
  outcome_.outcomes.reserve(plan.samples.size());
  searching_.reserve(plan.samples.size());

  for (const PromptScores& scores : result.prompt_scores) {
    const Owner* owner = owners_.find(scores.seq);
    if (owner == nullptr) continue;
    Request& request = *owner->request;
    Reason why = status_reason(request, scores.status, scores.first_pos, {});
    if (!why) why = failures_.of([&] { take_scores(request, scores); });
    if (why) fault(request, scores.seq, why);
  }
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const SampleRow& sample = plan.samples[i];
    const SampleOutput& output = result.samples[i];
    const Owner* found = owners_.find(sample.state);
    if (found == nullptr) continue;  // cancelled while the step ran
    Request& request = *found->request;
    const int32_t index = found->index;
    const SeqId parent = plan.rows[sample.row].seq;
    Reason why = status_reason(request, output.status, sample.position, output.why);
    if (!why) {
      if (request.times.first_token == 0) request.times.first_token = now;
      request.times.last_token = now;
      why = failures_.of([&] { take_sample(request, index, parent, sample, output); });
    }
    if (!why) continue;
    std::erase(searching_, &request);
    fault(request, parent, why);
  }
  for (Request* request : searching_) {
    const SeqId beam = request->seqs[0];
    if (const Reason why = failures_.of([&] { commit_beams(*request); })) fault(*request, beam, why);
  }
  if (const Reason why = failures_.persist([&] { scheduler_.commit(plan.step, outcome_); })) abandon(plan, why);
}

void StepLoop::take_scores(Request& request, const PromptScores& scores) {
  auto& all = request.prompt_logprobs;
  const size_t first = static_cast<size_t>(scores.first_pos) - 1;
  if (all.size() < first + scores.scores.size()) all.resize(first + scores.scores.size());
  std::copy(scores.scores.begin(), scores.scores.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
}

void StepLoop::take_sample(Request& request, int32_t index, SeqId parent, const SampleRow& sample,
                           const SampleOutput& output) {
  if (!request.beams) return commit_choice(request, index, parent, sample, output);
  // All of its beams are sampled in one step.
  if (request.candidates.empty()) {
    request.candidates.resize(request.seqs.size());
    searching_.push_back(&request);
  }
  request.candidates[index] = output.candidates;
}

// Whether tokens that a grammar forces may be appended unsampled: nobody asks for their logprobs, no other mask could
// forbid them, and no sibling would wait while they are computed.
static bool may_jump(const Request& request) {
  const SamplingParams& p = *request.params;
  return p.grammar && request.seqs.size() == 1 && p.logprobs < 0 && !request.ranked && p.allowed_token_ids.empty() &&
         p.bad_words.empty() && p.min_tokens == 0;
}

// The token that was drawn, and those that the grammar leaves no choice about: the same that sampling would find, since
// each is alone in its mask. Returns true when the last of `taken_` ends the choice.
bool StepLoop::take_tokens(Request& request, Choice& choice, SeqId seq, const SampleOutput& output) {
  taken_.assign(1, output.token);
  bool complete = executor_.accept(seq, output.token);
  bool last = choice.push(output.token, output.logprobs, request.max_new_tokens, eos_, complete);
  if (last || !may_jump(request)) return last;
  executor_.list_forced(seq, taken_);
  for (size_t i = 1; i < taken_.size() && !last; ++i) {
    complete = executor_.accept(seq, taken_[i]);
    last = choice.push(taken_[i], {}, request.max_new_tokens, eos_, complete);
    if (last) taken_.resize(i + 1);
  }
  return last;
}

// The sequence `seq` got a token; it is `parent`, or forks it: then it shares the prompt.
void StepLoop::commit_choice(Request& request, int32_t index, SeqId parent, const SampleRow& sample,
                             const SampleOutput& output) {
  const SeqId seq = sample.state;
  Choice& choice = request.choices[index];
  bool last = false;
  try {
    last = take_tokens(request, choice, seq, output);
  } catch (const Error& e) {
    fault(request, parent, status_reason(request, SampleStatus::kGrammar, sample.position, e.what()));
    return;
  }
  const auto first_forced = static_cast<int32_t>(outcome_.forced.size());
  outcome_.forced.insert(outcome_.forced.end(), taken_.begin() + 1, taken_.end());
  const auto num_forced = static_cast<int32_t>(taken_.size()) - 1;
  outcome_.outcomes.push_back({parent, seq, output.token, last, first_forced, num_forced});
  // Nothing that fails from here on ends the request.
  stats_.generation_tokens += 1 + num_forced;
  stats_.forced_tokens += num_forced;
  if (last) {
    failures_.of([&] { choice.set_history(scheduler_.tokens(parent), taken_); });  // else it cannot be forked
    drop_sequence(seq);
    std::erase(request.seqs, seq);
  }
  if (request.seqs.empty()) {
    finish(request);
  } else if (!request.ranked) {
    failures_.of([&] { tell(request, choice); });  // else with the next
  }
}

// Its sequences are gone at once, what there is to tell waits for publish().
void StepLoop::end_request(Request& request, Finish why, const Reason& error) {
  if (request.over) return;
  for (const SeqId seq : request.seqs) {
    const Owner owner = *owners_.find(seq);
    // A branch that has not been sampled yet is no more than its prompt.
    auto tokens = scheduler_.tokens(seq);
    if (tokens.empty()) tokens = scheduler_.tokens(request.seqs[0]);
    if (why == Finish::kAbort && !request.beams)
      failures_.of([&] { request.choices[owner.index].set_history(tokens); });
    drop_sequence(seq);
  }
  request.seqs.clear();
  request.end = why;
  request.error = error;
  finish(request);
}

void StepLoop::drop_sequence(SeqId seq) {
  executor_.drop_sequence(seq);
  owners_.erase(seq);
}

LoopStats StepLoop::stats() const {
  LoopStats out = stats_;
  out.sched = scheduler_.stats();
  if (lost_) out.device_lost = lost_->message;
  return out;
}

LoopSnapshot StepLoop::snapshot() const {
  LoopSnapshot out{scheduler_.snapshot(), stats(), monotonic_seconds(), {}};
  for (const WaitingRequest& w : out.sched.waiting) {
    out.waited.push_back(out.time - requests_.at(w.id)->times.arrival);
  }
  std::vector<RunningRequest>& running = out.sched.running;
  const auto late = [this](const RunningRequest& r) {
    return std::ranges::any_of(requests_.at(r.id)->seqs, [this](SeqId s) { return executor_.waited_for_mask(s); });
  };
  if (std::ranges::none_of(running, late)) return out;
  for (RunningRequest& r : running) {
    if (r.why == RunReason::kOnTime) r.why = late(r) ? RunReason::kGrammar : RunReason::kOthersGrammar;
  }
  return out;
}

void StepLoop::audit() const { scheduler_.audit(); }

}  // namespace octavo
