#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace octavo {

// The stop strings of a request as one automaton over bytes (Aho and Corasick, 1975), built once. A matcher's whole
// state is a node, so a fork copies an integer; a byte costs O(1) amortised however many strings there are.
class StopStrings {
 public:
  using Node = uint32_t;
  static constexpr Node kRoot = 0;

  // None may be empty; all are valid UTF-8, so that a held suffix starts at a character's first byte.
  explicit StopStrings(const std::vector<std::string>& stops);

  bool empty() const { return lengths_.empty(); }
  Node advance(Node node, uint8_t byte) const;
  // Length of the longest suffix of the text so far that can still become a stop string: what must be held back.
  uint32_t depth(Node node) const { return nodes_[node].depth; }
  // The stop string that ends here, -1: none. Of several the longest, of equal ones the first in the list.
  int32_t match(Node node) const { return nodes_[node].match; }
  uint32_t length(int32_t stop) const { return lengths_[stop]; }

 private:
  struct State {
    std::vector<std::pair<uint8_t, Node>> edges;
    Node fail = kRoot;
    uint32_t depth = 0;
    int32_t match = -1;
  };
  Node child(Node node, uint8_t byte) const;  // kRoot: none
  void link_failures();

  std::vector<State> nodes_;
  std::array<Node, 256> root_edges_{};  // most text stays at the root
  std::vector<uint32_t> lengths_;
};

}  // namespace octavo
