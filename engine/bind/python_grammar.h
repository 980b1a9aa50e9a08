#pragma once
#include <nanobind/nanobind.h>

#include <memory>

#include "sample/constraint.h"

namespace octavo {

// A grammar whose matchers are Python objects (llguidance.LLMatcher, none of whose tokens are consumed): what serves
// where the library's C functions cannot be used. Every call takes the interpreter's lock.
std::shared_ptr<Grammar> make_python_grammar(nanobind::object matcher, int vocab);

}  // namespace octavo
