#include "runtime/step_loop.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/format.h"
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
  if (trace) phases_ = {trace->phase("plan"), trace->phase("execute"), trace->phase("commit"), trace->phase("publish")};
}

void StepLoop::add(RequestId id, SubmitRequest submit, double arrival) {
  const SamplingParams& params = *submit.params;
  const int32_t width = num_sequences(params);
  auto request = std::make_unique<Request>();
  request->id = id;
  request->params = submit.params;
  request->channel = std::move(submit.channel);
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
                             ? std::move(submit.next_choice)
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
  executor_.add_sequence(spec.seqs[0], std::move(sampling), submit.prompt, submit.num_output, submit.first_choice);
  owners_.insert(spec.seqs[0], {request.get(), 0});
  if (params.beam_width > 0) {
    request->seqs = {spec.seqs[0]};  // later beams are forks of it
    request->beams =
        std::make_unique<BeamSearch>(BeamOptions{params.beam_width, params.n, request->max_new_tokens,
                                                 params.length_penalty, params.early_stopping, params.stop_token_ids});
  } else {
    request->seqs = spec.seqs;
    for (int32_t i = 1; i < width; ++i) {
      executor_.fork_sequence(spec.seqs[0], spec.seqs[i], submit.first_choice + static_cast<uint32_t>(i));
      owners_.insert(spec.seqs[i], {request.get(), i});
    }
  }

  spec.id = id;
  spec.prompt = std::move(submit.prompt);
  spec.prefix_namespace = submit.prefix_namespace;
  spec.shared_tokens = submit.shared_tokens;
  spec.tenant = submit.tenant;
  spec.priority = submit.priority;
  spec.max_new_tokens = request->max_new_tokens;
  spec.prompt_logits = request->prompt_logprobs_due;
  spec.lockstep = executor_.needs_tokens(params);
  spec.source = submit.source;
  requests_.emplace(id, std::move(request));
  scheduler_.add(std::move(spec));
}

void StepLoop::cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  end_request(*it->second, Finish::kAbort, nullptr);
  scheduler_.cancel(id);
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
  const Trace::Span span(phases_.commit);
  const double now = monotonic_seconds();
  step_samples_ = plan.samples.size();
  outcome_.outcomes.clear();
  outcome_.faults.clear();
  outcome_.forced.clear();
  for (const PromptScores& scores : result.prompt_scores) {
    const Owner* owner = owners_.find(scores.seq);
    if (owner == nullptr) continue;
    Request& request = *owner->request;
    if (scores.status != SampleStatus::kOk) {
      fault(request, scores.seq, scores.status, scores.first_pos);
      continue;
    }
    auto& all = request.prompt_logprobs;
    const size_t first = static_cast<size_t>(scores.first_pos) - 1;
    if (all.size() < first + scores.scores.size()) all.resize(first + scores.scores.size());
    std::copy(scores.scores.begin(), scores.scores.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
  }
  searching_.clear();
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const SampleRow& sample = plan.samples[i];
    const SampleOutput& output = result.samples[i];
    const Owner* found = owners_.find(sample.state);
    if (found == nullptr) continue;  // cancelled while the step ran
    Request& request = *found->request;
    const int32_t index = found->index;
    const SeqId parent = plan.rows[sample.row].seq;
    if (output.status != SampleStatus::kOk) {
      std::erase(searching_, &request);
      fault(request, parent, output.status, sample.position, output.why);
      continue;
    }
    if (request.times.first_token == 0) request.times.first_token = now;
    request.times.last_token = now;
    if (request.beams) {
      // All of its beams are sampled in one step.
      if (request.candidates.empty()) {
        searching_.push_back(&request);
        request.candidates.resize(request.seqs.size());
      }
      request.candidates[index] = output.candidates;
    } else {
      commit_choice(request, index, parent, sample.state, output, sample.position);
    }
  }
  for (Request* request : searching_) commit_beams(*request);
  scheduler_.commit(plan.step, outcome_);
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
void StepLoop::commit_choice(Request& request, int32_t index, SeqId parent, SeqId seq, const SampleOutput& output,
                             int32_t position) {
  Choice& choice = request.choices[index];
  bool last = false;
  try {
    last = take_tokens(request, choice, seq, output);
  } catch (const Error& e) {
    fault(request, parent, SampleStatus::kGrammar, position, e.what());
    return;
  }
  const auto first_forced = static_cast<int32_t>(outcome_.forced.size());
  outcome_.forced.insert(outcome_.forced.end(), taken_.begin() + 1, taken_.end());
  const auto num_forced = static_cast<int32_t>(taken_.size()) - 1;
  outcome_.outcomes.push_back({parent, seq, output.token, last, first_forced, num_forced});
  stats_.generation_tokens += 1 + num_forced;
  stats_.forced_tokens += num_forced;
  if (last) {
    const auto before = scheduler_.tokens(parent);
    choice.set_history(before, taken_);
    drop_sequence(seq);
    std::erase(request.seqs, seq);
  }
  const bool over = last && request.seqs.empty();
  if (!request.ranked) {
    tell(request, choice);
  } else if (over) {
    request.keep_best();
    tell(request);
  }
  if (over) forget(request);
}

void StepLoop::end_request(Request& request, Finish why, const Refusal* error) {
  for (Choice& choice : request.choices) choice.end(why);
  for (const SeqId seq : request.seqs) {
    const Owner owner = *owners_.find(seq);
    // A branch that has not been sampled yet is no more than its prompt.
    auto tokens = scheduler_.tokens(seq);
    if (tokens.empty()) tokens = scheduler_.tokens(request.seqs[0]);
    if (why == Finish::kAbort && !request.beams) request.choices[owner.index].set_history(tokens);
    drop_sequence(seq);
  }
  request.seqs.clear();
  if (request.ranked) {
    std::ranges::stable_partition(request.choices, [&](const Choice& c) { return c.finish() == why; });
    request.keep_first();
  }
  tell(request);
  if (error) {
    for (Delta& delta : outgoing(request.channel))
      if (delta.id == request.id && delta.finish == Finish::kError)
        delta.error = std::make_shared<const Refusal>(*error);
  }
  forget(request);
}

void StepLoop::drop_sequence(SeqId seq) {
  executor_.drop_sequence(seq);
  owners_.erase(seq);
}

// All of it has been told: what remains are the histories that may be forked.
void StepLoop::forget(Request& request) {
  for (size_t i = 0; i < request.choices.size(); ++i) {
    std::vector<int32_t> tokens = request.choices[i].take_history();
    if (tokens.empty()) continue;
    histories_.keep(request.id, static_cast<int32_t>(i),
                    {std::move(tokens), request.output_start, request.params, request.prefix_namespace,
                     request.shared_tokens, request.tenant, request.priority, request.next_choice});
  }
  requests_.erase(request.id);
}

void StepLoop::tell(Request& request) {
  for (Choice& choice : request.choices) tell(request, choice);
}

void StepLoop::tell(Request& request, Choice& choice) {
  Delta delta;
  if (!choice.take(delta)) return;
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

std::vector<Delta>& StepLoop::outgoing(const std::shared_ptr<Channel>& channel) {
  for (Outgoing& o : outgoing_)
    if (o.channel == channel) return o.deltas;
  outgoing_.push_back({channel, {}});
  outgoing_.back().deltas.reserve(step_samples_);  // as many as a step usually tells
  return outgoing_.back().deltas;
}

void StepLoop::publish() {
  const Trace::Span span(phases_.publish);
  for (Outgoing& o : outgoing_) o.channel->publish(o.deltas);
  outgoing_.clear();
}

LoopStats StepLoop::stats() const {
  LoopStats out = stats_;
  out.sched = scheduler_.stats();
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
