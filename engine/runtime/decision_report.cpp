#include "runtime/decision_report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <string_view>

#include "base/errors.h"
#include "sched/names.h"

namespace octavo {

namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
constexpr size_t kLongestLine = 512;

std::atomic<DecisionReport*> g_report{nullptr};
std::array<struct sigaction, kSignals.size()> g_before;

// Writes without memory of its own or a lock: a signal handler may.
class Line {
 public:
  void add(std::string_view text) { size_ += text.copy(buffer_.data() + size_, buffer_.size() - size_); }
  template <class Number>
  void number(Number value) {
    size_ = static_cast<size_t>(std::to_chars(buffer_.data() + size_, buffer_.data() + buffer_.size(), value).ptr -
                                buffer_.data());
  }
  void key(const char* name) {
    add(size_ == 0 ? "{\"" : ",\"");
    add(name);
    add("\":");
  }
  std::string_view text() const { return {buffer_.data(), size_}; }

 private:
  std::array<char, kLongestLine> buffer_;
  size_t size_ = 0;
};

void add_value(Line& line, ValueType type, int64_t value) {
  switch (type) {
    case ValueType::kInteger:
      line.number(value);
      break;
    case ValueType::kUnsigned:
      line.number(static_cast<uint64_t>(value));
      break;
    case ValueType::kFlag:
      line.add(value != 0 ? "true" : "false");
      break;
    case ValueType::kWaitReason:
      line.add("\"");
      line.add(name_of(static_cast<WaitReason>(value)));
      line.add("\"");
      break;
  }
}

void add_decision(Line& line, const Decision& decision) {
  const DecisionShape& shape = shape_of(decision.kind);
  line.key("kind");
  line.add("\"");
  line.add(shape.kind);
  line.add("\"");
  line.key("step");
  line.number(decision.step);
  if (decision.request != 0) {
    line.key("request");
    line.number(decision.request);
  }
  for (size_t i = 0; i < shape.values.size() && shape.values[i].name != nullptr; ++i) {
    line.key(shape.values[i].name);
    add_value(line, shape.values[i].type, decision.values[i]);
  }
  line.add("}\n");
}

}  // namespace

DecisionReport::DecisionReport(std::shared_ptr<const DecisionLog> log, int fd, off_t at, size_t size)
    : log_(std::move(log)), fd_(fd), at_(at), text_(size, ' '), last_text_(size, ' ') {
  DecisionReport* none = nullptr;
  if (!g_report.compare_exchange_strong(none, this))
    throw Error(ErrorCode::kInvalidArgument, "report", "this process reports the decisions of another engine already");
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

// Whoever took a signal over since keeps it.
DecisionReport::~DecisionReport() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now{};
    sigaction(kSignals[i], nullptr, &now);
    if (now.sa_handler == on_signal) sigaction(kSignals[i], &g_before[i], nullptr);
  }
  g_report = nullptr;
}

void DecisionReport::fill(std::string& text) const noexcept {
  size_t begin = text.size();
  const uint64_t end = log_->total();
  Decision decision;
  for (uint64_t number = end; number-- > 0;) {
    if (!log_->read(number, decision)) break;
    Line line;
    add_decision(line, decision);
    const std::string_view added = line.text();
    if (added.size() + 1 > begin) break;
    begin -= added.size();
    added.copy(text.data() + begin, added.size());
  }
  std::fill_n(text.begin(), begin, ' ');
  if (begin > 0) text[begin - 1] = '\n';
  // A full disk is not the requests' trouble.
  [[maybe_unused]] const ssize_t written = pwrite(fd_, text.data(), text.size(), at_);
}

void DecisionReport::on_signal(int number) {
  if (DecisionReport* report = g_report.exchange(nullptr)) report->fill(report->last_text_);
  const auto at = std::ranges::find(kSignals, number) - kSignals.begin();
  sigaction(number, &g_before[static_cast<size_t>(at)], nullptr);
  raise(number);  // comes when this returns
}

}  // namespace octavo
