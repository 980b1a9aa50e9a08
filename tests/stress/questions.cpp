#include "questions.h"

#include <random>
#include <stdexcept>

#include "turns_grammar.h"

using namespace octavo;

namespace {

constexpr int kQuestions = 40;
constexpr int kCommon = 40;  // tokens that some prompts begin with

void make_special(SamplingParams& params, int kind, int vocab) {
  switch (kind) {
    case 1:
      params.temperature = 0.8f;
      params.top_p = 0.9f;
      break;
    case 2:
      params.n = 3;
      break;
    case 3:
      params.logprobs = 2;
      params.temperature = 0.0f;
      break;
    case 4:
      params.n = 2;
      params.best_of = 4;
      break;
    case 5:
      params.beam_width = 3;
      params.n = 2;
      params.temperature = 0.0f;
      break;
    case 6:
      params.repetition_penalty = 1.2f;
      params.frequency_penalty = 0.5f;
      params.bad_words = {{3, 4}, {9}};
      break;
    case 7:
      params.stop = {"A", "qq"};
      params.prompt_logprobs = 0;
      break;
    case 8:
      params.grammar = std::make_shared<TurnsGrammar>(vocab, 30);
      break;
    default:
      params.temperature = 0.0f;
  }
}

Answer ask(Engine& engine, const Question& question) {
  const auto channel = engine.open_channel();
  SubmitRequest request;
  request.prompt = question.prompt;
  request.params = question.params;
  request.channel = channel;
  const auto result = engine.submit(std::move(request));
  if (const auto* refusal = std::get_if<Refusal>(&result)) throw std::runtime_error(refusal->message);
  Answer answer;
  while (!ended(answer, question.params->n)) {
    channel->wait(100);
    for (const Delta& delta : channel->drain()) {
      if (delta.finish == Finish::kError) throw std::runtime_error(delta.error ? delta.error->message : "an error");
      answer[delta.choice].add(delta);
    }
  }
  return answer;
}

}  // namespace

std::vector<Question> ask_quietly(Engine& engine, int vocab) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<Question> questions(kQuestions);
  for (int i = 0; i < kQuestions; ++i) {
    Question& q = questions[i];
    if (i % 3 == 0)
      for (int t = 0; t < kCommon; ++t) q.prompt.push_back(t);
    const int own = 1 + below(9) * below(9);
    for (int t = 0; t < own; ++t) q.prompt.push_back(below(vocab));
    q.params = std::make_shared<SamplingParams>();
    q.params->max_tokens = 1 + below(60);
    q.params->seed = random();
    make_special(*q.params, i % 10, vocab);
    q.quiet = ask(engine, q);
  }
  return questions;
}
