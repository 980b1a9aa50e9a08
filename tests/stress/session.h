#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "questions.h"
#include "wire.h"

struct Counts {
  std::atomic<int64_t> accepted{0}, ended{0}, equal{0}, cut{0}, failed{0}, tokens{0}, hung_up{0}, directly{0};
  std::atomic<bool> wrong{false};

  void complain(octavo::RequestId id, const char* what);
};

// A channel and what is asked through it. Any thread may ask; whoever holds the reading lock reads, and leaves it to
// another when it likes.
class Session {
 public:
  Session(octavo::Engine& engine, Counts& counts);

  size_t under_way();
  // False: the session is closed. Throws octavo::Error when the engine is shut down.
  bool ask(const Question& question, uint64_t tenant, int32_t priority);
  // Asks a question again as a continuation of the oldest request under way, after the prompt of it or where it is now.
  void fork(bool at_prompt);
  void cancel(uint32_t which);  // one of those under way
  void close();                 // as when its consumer goes: what is under way is cut off, nothing more is asked

  std::unique_lock<std::mutex> try_reading() { return std::unique_lock(reading_, std::try_to_lock); }
  std::unique_lock<std::mutex> reading() { return std::unique_lock(reading_); }
  // With the reading lock: takes what there is and compares answers that have ended with the quiet ones.
  void read(int timeout_ms);
  void read_to_the_end();  // of all that is under way; complains of what does not end within a minute

 private:
  struct Asked {
    const Question* question;  // null: nobody knows the answer
    int choices;
    Answer answer;
    bool may_fail;               // a fork of what may be forgotten
    std::unique_ptr<Wire> wire;  // from the first text on, of one choice alone
  };
  void take(const octavo::Delta& delta);
  void check(octavo::RequestId id, const Asked& asked);

  octavo::Engine& engine_;
  Counts& counts_;
  std::shared_ptr<octavo::Channel> channel_;
  std::mutex reading_;
  std::mutex mutex_;  // of what follows; an answer may arrive before submit() has returned
  bool closed_ = false;
  std::map<octavo::RequestId, Asked> under_way_;
};
