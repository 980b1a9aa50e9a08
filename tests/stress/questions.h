#pragma once
#include <vector>

#include "answers.h"
#include "runtime/engine.h"

// A request, and what the engine answers while it has nothing else to do.
struct Question {
  std::vector<int32_t> prompt;
  std::shared_ptr<octavo::SamplingParams> params;
  Answer quiet;
};

// Requests of every kind: greedy, seeded, scored, several choices, the best of several, beams, penalties, stop strings,
// held to a grammar. Asks each of them alone.
std::vector<Question> ask_quietly(octavo::Engine& engine, int vocab);
