#include "session.h"

#include <chrono>
#include <cstdio>
#include <iterator>

using namespace octavo;

void Counts::complain(RequestId id, const char* what) {
  std::fprintf(stderr, "request %llu %s\n", static_cast<unsigned long long>(id), what);
  wrong = true;
}

Session::Session(Engine& engine, Counts& counts) : engine_(engine), counts_(counts), channel_(engine.open_channel()) {}

size_t Session::under_way() {
  std::lock_guard lock(mutex_);
  return under_way_.size();
}

bool Session::ask(const Question& question, uint64_t tenant, int32_t priority) {
  SubmitRequest request;
  request.prompt = question.prompt;
  request.params = question.params;
  request.channel = channel_;
  request.tenant = request.prefix_namespace = tenant;
  request.priority = priority;
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  const auto result = engine_.submit(std::move(request));
  under_way_[std::get<RequestId>(result)] = {&question, question.params->n, {}, false, nullptr};
  ++counts_.accepted;
  return true;
}

void Session::fork(bool at_prompt) {
  std::lock_guard lock(mutex_);
  if (closed_ || under_way_.empty()) return;
  const auto& [parent, asked] = *under_way_.begin();
  const Question* question = asked.question;
  // Draws depend on the number of the choice, which forks take in the order in which they come.
  at_prompt = at_prompt && question && question->params->temperature == 0.0f && question->params->n == 1;
  ForkRequest fork;
  fork.parent = parent;
  fork.channel = channel_;
  if (at_prompt) {
    fork.position = static_cast<int32_t>(question->prompt.size());
  } else {
    auto params = std::make_shared<SamplingParams>();
    params->max_tokens = 20;
    fork.params = params;
  }
  const auto result = engine_.fork(std::move(fork));
  under_way_[std::get<RequestId>(result)] = {at_prompt ? question : nullptr, 1, {}, true, nullptr};
  ++counts_.accepted;
}

void Session::cancel(uint32_t which) {
  RequestId id;
  {
    std::lock_guard lock(mutex_);
    if (under_way_.empty()) return;
    id = std::next(under_way_.begin(), which % under_way_.size())->first;
  }
  engine_.cancel(id);
}

void Session::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  ++counts_.hung_up;
  engine_.close_channel(channel_);
}

void Session::read(int timeout_ms) {
  if (!channel_->wait(timeout_ms)) return;
  for (const Delta& delta : channel_->drain()) take(delta);
}

void Session::read_to_the_end() {
  const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (under_way() > 0 && std::chrono::steady_clock::now() < patience) read(100);
  std::lock_guard lock(mutex_);
  for (const auto& [id, asked] : under_way_) counts_.complain(id, "never ended");
}

void Session::take(const Delta& delta) {
  std::lock_guard lock(mutex_);
  counts_.tokens += static_cast<int64_t>(delta.token_ids.size());
  const auto it = under_way_.find(delta.id);
  if (it == under_way_.end()) return counts_.complain(delta.id, "tells something after its end");
  Asked& asked = it->second;
  Spoken& spoken = asked.answer[delta.choice];
  if (spoken.finish != Finish::kNone) counts_.complain(delta.id, "goes on after the end of a choice");
  spoken.add(delta);
  if (delta.finish == Finish::kError && !asked.may_fail)
    counts_.complain(delta.id, delta.error ? delta.error->message.c_str() : "fails without a cause");
  counts_.directly += delta.sent;
  if (asked.wire) {
    asked.wire->take(delta);
  } else if (asked.choices == 1 && delta.finish == Finish::kNone) {
    asked.wire = std::make_unique<Wire>(*channel_, delta.id);
  }
  if (!ended(asked.answer, asked.choices)) return;
  if (asked.wire && !asked.wire->ends_as_told()) counts_.complain(delta.id, "has another text on its socket");
  check(delta.id, asked);
  ++counts_.ended;
  under_way_.erase(it);
}

void Session::check(RequestId id, const Asked& asked) {
  bool cut = false, failed = false;
  for (const auto& [choice, spoken] : asked.answer) {
    cut |= spoken.finish == Finish::kAbort;
    failed |= spoken.finish == Finish::kError;
  }
  counts_.cut += cut;
  counts_.failed += failed;
  if (!asked.question || failed) return;
  if (!cut) {
    if (asked.answer != asked.question->quiet)
      return counts_.complain(id, "is answered otherwise than when it is quiet");
    ++counts_.equal;
    return;
  }
  // Which of several candidates were told is settled only in the end.
  const SamplingParams& params = *asked.question->params;
  if (params.best_of > params.n || params.beam_width > 0) return;
  for (const auto& [choice, spoken] : asked.answer)
    if (!spoken.begins(asked.question->quiet.at(choice))) counts_.complain(id, "goes another way before it is cut off");
}
