// Runs a target on inputs of its own making: fuzz_gguf [-runs=N] [-seed=N]. The same seed makes the same inputs; a
// crash is found again with the seed and the number of the input, which are printed as it goes. libFuzzer's other
// options and its folders are passed over, so that one command line fits both.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <span>
#include <string_view>

#include "target.h"

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

uint64_t option(std::span<char*> arguments, std::string_view name, uint64_t otherwise) {
  for (const std::string_view argument : arguments)
    if (argument.starts_with(name)) return std::strtoull(argument.data() + name.size(), nullptr, 10);
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv + 1, static_cast<size_t>(argc) - 1);
  const uint64_t count = option(arguments, "-runs=", 10'000);
  const uint64_t seed = option(arguments, "-seed=", 1);
  std::map<std::string, uint64_t> verdicts;
  double longest = 0;
  const double start = cpu_seconds();
  for (uint64_t i = 0; i < count; ++i) {
    if (i % 10'000 == 0) std::fprintf(stderr, "seed %lu, input %lu\n", seed, i);
    octavo::fuzz::Random random(seed * 1'000'000'007 + i);
    const std::vector<uint8_t> input = octavo::fuzz::make_input(random);
    const double before = cpu_seconds();
    const std::optional<std::string> refused = octavo::fuzz::read_input(input);
    longest = std::max(longest, cpu_seconds() - before);
    ++verdicts[refused.value_or("accepted")];
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf("%lu inputs in %.1f s of CPU time, the longest %.1f ms, peak memory %ld MiB\n", count,
              cpu_seconds() - start, longest * 1e3, used.ru_maxrss / 1024);
  for (const auto& [verdict, inputs] : verdicts) std::printf("%10lu %s\n", inputs, verdict.c_str());
}
