#include "text/stop_strings.h"

namespace octavo {

StopStrings::StopStrings(const std::vector<std::string>& stops) : nodes_(1) {
  for (const std::string& stop : stops) {
    Node node = kRoot;
    for (const char c : stop) {
      const auto byte = static_cast<uint8_t>(c);
      Node next = child(node, byte);
      if (next == kRoot) {
        next = static_cast<Node>(nodes_.size());
        State state;
        state.depth = nodes_[node].depth + 1;
        nodes_.push_back(std::move(state));
        if (node == kRoot) {
          root_edges_[byte] = next;
        }
        nodes_[node].edges.emplace_back(byte, next);
      }
      node = next;
    }
    if (nodes_[node].match < 0) nodes_[node].match = static_cast<int32_t>(lengths_.size());
    lengths_.push_back(static_cast<uint32_t>(stop.size()));
  }
  link_failures();
}

StopStrings::Node StopStrings::child(Node node, uint8_t byte) const {
  if (node == kRoot) return root_edges_[byte];
  for (const auto& [edge, next] : nodes_[node].edges) {
    if (edge == byte) return next;
  }
  return kRoot;
}

StopStrings::Node StopStrings::advance(Node node, uint8_t byte) const {
  while (true) {
    const Node next = child(node, byte);
    if (next != kRoot || node == kRoot) return next;
    node = nodes_[node].fail;
  }
}

void StopStrings::link_failures() {
  std::vector<Node> order = {kRoot};  // breadth first: a failure link leads to a shallower node, linked before
  for (size_t i = 0; i < order.size(); ++i) {
    const Node node = order[i];
    for (const auto& [byte, next] : nodes_[node].edges) {
      if (node != kRoot) nodes_[next].fail = advance(nodes_[node].fail, byte);
      if (nodes_[next].match < 0) nodes_[next].match = nodes_[nodes_[next].fail].match;
      order.push_back(next);
    }
  }
}

}  // namespace octavo
