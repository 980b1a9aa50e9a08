#include "python_grammar.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "base/errors.h"
#include "bind.h"

namespace octavo {

namespace {

// A Python object that is let go of under the lock, whichever thread does it.
class Held {
 public:
  explicit Held(nb::object object) : object_(std::move(object)) {}
  ~Held() {
    if (!Py_IsInitialized()) {
      object_.release();
      return;
    }
    nb::gil_scoped_acquire lock;
    object_.reset();
  }
  const nb::object& get() const { return object_; }

 private:
  nb::object object_;
};

// Python's exceptions become ours while the lock is held.
template <class Body>
auto locked(Body body) -> decltype(body()) {
  nb::gil_scoped_acquire lock;
  try {
    return body();
  } catch (nb::python_error& e) {
    throw Error(ErrorCode::kInvalidArgument, "grammar", std::string("the grammar cannot go on: ") + e.what());
  }
}

class PythonConstraint final : public Constraint {
 public:
  explicit PythonConstraint(std::unique_ptr<Held> matcher) : matcher_(std::move(matcher)) {}

  std::unique_ptr<Constraint> fork() const override {
    return locked([&] { return std::make_unique<PythonConstraint>(std::make_unique<Held>(call("deep_copy"))); });
  }

  void fill_mask(std::span<uint32_t> bits) override {
    locked([&] { call("unsafe_compute_mask_ptr", reinterpret_cast<uintptr_t>(bits.data()), bits.size_bytes()); });
  }

  void accept(int32_t token) override {
    locked([&] {
      if (nb::cast<bool>(call("consume_token", token))) return;
      throw Error(ErrorCode::kInvalidArgument, "grammar",
                  "the grammar does not allow what was generated: " + nb::cast<std::string>(call("get_error")));
    });
  }

  void rollback(int tokens) override {
    locked([&] { call("rollback", tokens); });
  }

  bool done() const override {
    return locked([&] { return nb::cast<bool>(call("is_stopped")); });
  }

  void list_forced(std::vector<int32_t>& tokens) override {
    const auto forced = locked([&] { return nb::cast<std::vector<int32_t>>(call("compute_ff_tokens")); });
    tokens.insert(tokens.end(), forced.begin(), forced.end());
  }

 private:
  template <class... Args>
  nb::object call(const char* name, Args... args) const {
    return matcher_->get().attr(name)(args...);
  }

  std::unique_ptr<Held> matcher_;
};

class PythonGrammar final : public Grammar {
 public:
  PythonGrammar(nb::object matcher, int vocab) : matcher_(std::make_unique<Held>(std::move(matcher))), vocab_(vocab) {}

  std::unique_ptr<Constraint> start() const override {
    return locked([&] {
      return std::make_unique<PythonConstraint>(std::make_unique<Held>(matcher_->get().attr("deep_copy")()));
    });
  }
  int vocab() const override { return vocab_; }

 private:
  std::unique_ptr<Held> matcher_;
  int vocab_;
};

}  // namespace

std::shared_ptr<Grammar> make_python_grammar(nb::object matcher, int vocab) {
  return std::make_shared<PythonGrammar>(std::move(matcher), vocab);
}

}  // namespace octavo
