#pragma once
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace octavo::fuzz {

using Random = std::mt19937_64;

// Each target defines these two.

// An input: a well-formed one with a few things in it made wrong.
std::vector<uint8_t> make_input(Random& random);

// Reads all that the engine would read of it. The reason of the refusal, none if it was accepted. Anything but an
// octavo::Error is a finding.
std::optional<std::string> read_input(std::span<const uint8_t> input);

}  // namespace octavo::fuzz
