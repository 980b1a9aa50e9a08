// The two hash tables of the prefix index, chained through its nodes, and its audit.
#include <algorithm>
#include <bit>

#include "base/errors.h"
#include "base/format.h"
#include "cache/prefix_index.h"

namespace octavo {

void PrefixIndex::link_full(NodeId n) {
  NodeId& head = full_[nodes_[n].key.lo & (full_.size() - 1)];
  nodes_[n].next_full = head;
  head = n;
}

void PrefixIndex::unlink_full(NodeId n) {
  NodeId* at = &full_[nodes_[n].key.lo & (full_.size() - 1)];
  while (*at != n) at = &nodes_[*at].next_full;
  *at = nodes_[n].next_full;
  nodes_[n].next_full = kNoNode;
}

void PrefixIndex::link_first(NodeId n) {
  NodeId& head = first_[first_bucket(nodes_[n].parent, nodes_[n].ns, tokens_[n * block_size_])];
  nodes_[n].next_first = head;
  nodes_[n].candidate = true;
  head = n;
}

void PrefixIndex::unlink_first(NodeId n) {
  NodeId* at = &first_[first_bucket(nodes_[n].parent, nodes_[n].ns, tokens_[n * block_size_])];
  while (*at != n) at = &nodes_[*at].next_first;
  *at = nodes_[n].next_first;
  nodes_[n].next_first = kNoNode;
  nodes_[n].candidate = false;
}

void PrefixIndex::grow_buckets(size_t nodes) {
  std::vector<NodeId> by_key(std::bit_ceil(nodes), kNoNode);
  std::vector<NodeId> by_token(by_key.size(), kNoNode);
  full_.swap(by_key);
  first_.swap(by_token);
  for (NodeId n = 0; n < static_cast<NodeId>(nodes_.size()); ++n) {
    if (nodes_[n].count == 0) continue;
    if (full(n)) link_full(n);
    if (nodes_[n].candidate) link_first(n);
  }
}

void PrefixIndex::audit() const {
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::kInternal, "audit", what); };
  std::vector<int> children(nodes_.size(), 0);
  std::vector<int> indexed(groups_, 0);
  int used = 0;
  for (NodeId n = 0; n < static_cast<NodeId>(nodes_.size()); ++n) {
    const Node& node = nodes_[n];
    if (node.count == 0) continue;
    ++used;
    if (node.parent != kNoNode) {
      ++children[node.parent];
      if (nodes_[node.parent].count != block_size_)
        fail(cat("node ", n, " hangs under the unfinished node ", node.parent));
    }
    bool any = false;
    for (int g = 0; g < groups_; ++g) {
      const BlockId b = block(n, g);
      if (b == kNoBlock) {
        if (retention_[g].window == 0) fail(cat("node ", n, " has no block in group ", g));
        continue;
      }
      any = true;
      ++indexed[g];
      if (pools_[g]->node(b) != n) fail(cat("block ", b, " of group ", g, " does not name its node ", n));
    }
    if (!any && node.children == 0 && node.holds == 0) fail(cat("node ", n, " is empty"));
    if (full(n)) {
      if (node.key != key_fn_(parent_key(node.parent), node.ns, tokens(n))) fail(cat("node ", n, " has a wrong key"));
      if (find_full(node.key, node.parent, node.ns, tokens(n)) != n) fail(cat("node ", n, " is not found by its key"));
    } else if (!node.candidate) {
      fail(cat("tail node ", n, " cannot be found"));
    }
    if (node.candidate && find_first(node.parent, node.ns, tokens(n)[0]) != n)
      fail(cat("two candidates beside node ", n));
  }
  if (used != num_nodes_) fail(cat(used, " nodes used, ", num_nodes_, " counted"));
  for (NodeId n = 0; n < static_cast<NodeId>(nodes_.size()); ++n) {
    if (nodes_[n].children != children[n])
      fail(cat("node ", n, " counts ", nodes_[n].children, " children of ", children[n]));
  }
  for (int g = 0; g < groups_; ++g) {
    int named = 0;
    for (BlockId b = 0; b < pools_[g]->size(); ++b) named += pools_[g]->node(b) != kNoNode;
    if (named != indexed[g])
      fail(cat("group ", g, ": ", named, " blocks name a node, ", indexed[g], " nodes hold one"));
  }
}

}  // namespace octavo
