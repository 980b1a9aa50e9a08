#include "cache/prefix_index.h"

#include <algorithm>

#include "base/reserve.h"

namespace octavo {

PrefixIndex::PrefixIndex(int block_size, std::vector<BlockPool*> pools, std::vector<CacheRetention> retention,
                         PrefixKeyFn key_fn, PrefixKey root_key)
    : block_size_(block_size),
      groups_(static_cast<int>(pools.size())),
      pools_(std::move(pools)),
      retention_(std::move(retention)),
      key_fn_(key_fn),
      root_key_(root_key),
      full_(64, kNoNode),
      first_(64, kNoNode),
      run_(groups_) {
  for (const CacheRetention& r : retention_) has_full_group_ |= r.window == 0;
}

bool PrefixIndex::serves_all(NodeId n) const {
  for (int g = 0; g < groups_; ++g) {
    if (!serves(n, g)) return false;
  }
  return true;
}

bool PrefixIndex::same(NodeId n, NodeId parent, uint64_t ns, std::span<const int32_t> tokens) const {
  const Node& node = nodes_[n];
  return node.parent == parent && node.ns == ns && std::ranges::equal(this->tokens(n), tokens);
}

NodeId PrefixIndex::find_full(const PrefixKey& key, NodeId parent, uint64_t ns, std::span<const int32_t> tokens) const {
  for (NodeId n = full_[key.lo & (full_.size() - 1)]; n != kNoNode; n = nodes_[n].next_full) {
    if (nodes_[n].key == key && same(n, parent, ns, tokens)) return n;
  }
  return kNoNode;
}

size_t PrefixIndex::first_bucket(NodeId parent, uint64_t ns, int32_t token) const {
  const uint64_t x =
      (uint64_t{static_cast<uint32_t>(parent)} << 32 | static_cast<uint32_t>(token)) ^ (ns * 0x9e3779b97f4a7c15u);
  return ((x * 0xd6e8feb86659fd93u) >> 32) & (first_.size() - 1);
}

NodeId PrefixIndex::find_first(NodeId parent, uint64_t ns, int32_t token) const {
  for (NodeId n = first_[first_bucket(parent, ns, token)]; n != kNoNode; n = nodes_[n].next_first) {
    const Node& node = nodes_[n];
    if (node.parent == parent && node.ns == ns && tokens_[n * block_size_] == token) return n;
  }
  return kNoNode;
}

void PrefixIndex::find(uint64_t shared_ns, uint64_t ns, int shared_blocks, std::span<const int32_t> tokens,
                       PrefixMatch& match) const {
  match.path.clear();
  match.tail = kNoNode;
  match.tail_tokens = 0;
  const auto space = [&](int depth) { return depth < shared_blocks ? shared_ns : ns; };

  // A window group serves the prefix of d blocks when it still holds the blocks of the last window - 1 positions.
  std::ranges::fill(run_, 0);
  int served = 0;
  NodeId parent = kNoNode;
  for (size_t at = 0; at + block_size_ <= tokens.size(); at += block_size_) {
    const auto block_tokens = tokens.subspan(at, block_size_);
    const int depth = static_cast<int>(match.path.size());
    const NodeId child =
        find_full(key_fn_(parent_key(parent), space(depth), block_tokens), parent, space(depth), block_tokens);
    if (child == kNoNode) break;
    match.path.push_back(child);
    bool all = true;
    for (int g = 0; g < groups_; ++g) {
      run_[g] = serves(child, g) ? run_[g] + 1 : 0;
      const int window = retention_[g].window;
      const int oldest = window == 0 ? 0 : std::max(0, (depth + 1) * block_size_ - window + 1) / block_size_;
      all &= run_[g] >= depth + 1 - oldest;
    }
    if (all) served = depth + 1;
    parent = child;
  }
  match.path.resize(served);

  const auto rest = tokens.subspan(size_t(served) * block_size_);
  if (rest.empty()) return;
  const NodeId tail = find_first(served == 0 ? kNoNode : match.path.back(), space(served), rest[0]);
  if (tail == kNoNode || !serves_all(tail)) return;
  const auto have = this->tokens(tail);
  const auto parted = std::mismatch(have.begin(), have.end(), rest.begin(), rest.end());
  match.tail = tail;
  match.tail_tokens = static_cast<int>(parted.first - have.begin());
}

NodeId PrefixIndex::insert(NodeId parent, uint64_t ns, std::span<const int32_t> tokens,
                           std::span<const BlockId> blocks) {
  const PrefixKey key = key_fn_(parent_key(parent), ns, tokens);
  const NodeId tail = own_tail(parent, ns, tokens, blocks);
  NodeId n = find_full(key, parent, ns, tokens);
  if (n != kNoNode) {
    if (tail != kNoNode) remove(tail);
    give_blocks(n, blocks);
    return n;
  }
  if (tail != kNoNode) {
    grow_tail(tail, tokens);
    n = tail;
  } else {
    n = create(parent, ns, tokens);
    give_blocks(n, blocks);
    become_candidate(n);
  }
  nodes_[n].key = key;
  link_full(n);
  return n;
}

void PrefixIndex::insert_tail(NodeId parent, uint64_t ns, std::span<const int32_t> tokens,
                              std::span<const BlockId> blocks) {
  if (const NodeId tail = own_tail(parent, ns, tokens, blocks); tail != kNoNode) {
    grow_tail(tail, tokens);
    return;
  }
  for (int g = 0; g < groups_; ++g) {
    if (blocks[g] == kNoBlock || pools_[g]->node(blocks[g]) != kNoNode) return;  // a fork's sibling wrote more of it
  }
  const NodeId rival = find_first(parent, ns, tokens[0]);
  if (rival != kNoNode && (full(rival) || nodes_[rival].count >= static_cast<int>(tokens.size()))) return;
  const NodeId n = create(parent, ns, tokens);
  give_blocks(n, blocks);
  become_candidate(n);
}

// The tail node that names these blocks since they held fewer tokens, when it can grow into `tokens`.
NodeId PrefixIndex::own_tail(NodeId parent, uint64_t ns, std::span<const int32_t> tokens,
                             std::span<const BlockId> blocks) {
  NodeId tail = kNoNode;
  for (int g = 0; g < groups_; ++g) {
    const NodeId n = blocks[g] == kNoBlock ? kNoNode : pools_[g]->node(blocks[g]);
    if (n == kNoNode || full(n)) continue;
    const auto held = static_cast<size_t>(nodes_[n].count);
    if (held > tokens.size()) continue;
    bool grows = (tail == kNoNode || tail == n) && same(n, parent, ns, tokens.first(held));
    for (int k = 0; k < groups_; ++k) grows &= block(n, k) == blocks[k];
    if (grows) {
      tail = n;
    } else {
      remove(n);
    }
  }
  return tail;
}

void PrefixIndex::grow_tail(NodeId tail, std::span<const int32_t> tokens) {
  std::copy(tokens.begin() + nodes_[tail].count, tokens.end(),
            tokens_.begin() + tail * block_size_ + nodes_[tail].count);
  nodes_[tail].count = static_cast<int32_t>(tokens.size());
}

void PrefixIndex::reserve(int more) {
  const size_t before = nodes_.size();
  const size_t wanted = static_cast<size_t>(num_nodes_) + static_cast<size_t>(more);
  if (wanted <= before) return;
  reserve_more(nodes_, wanted - before);
  reserve_more(tokens_, (wanted - before) * block_size_);
  reserve_more(blocks_, (wanted - before) * groups_);
  if (wanted > full_.size()) grow_buckets(wanted);
  nodes_.resize(wanted);
  tokens_.resize(wanted * block_size_);
  blocks_.resize(wanted * groups_, kNoBlock);
  for (size_t n = before; n < wanted; ++n) nodes_[n].next_full = std::exchange(unused_, static_cast<NodeId>(n));
}

NodeId PrefixIndex::create(NodeId parent, uint64_t ns, std::span<const int32_t> tokens) {
  reserve(1);
  const NodeId n = unused_;
  Node& node = nodes_[n];
  unused_ = node.next_full;
  node.ns = ns;
  node.parent = parent;
  node.next_full = kNoNode;
  node.count = static_cast<int32_t>(tokens.size());
  std::ranges::copy(tokens, tokens_.begin() + n * block_size_);
  if (parent != kNoNode) ++nodes_[parent].children;
  ++num_nodes_;
  return n;
}

void PrefixIndex::give_blocks(NodeId n, std::span<const BlockId> blocks) {
  for (int g = 0; g < groups_; ++g) {
    if (serves(n, g) || blocks[g] == kNoBlock || pools_[g]->node(blocks[g]) != kNoNode) continue;
    blocks_[n * groups_ + g] = blocks[g];
    pools_[g]->set_node(blocks[g], n);
  }
}

// A full block beats a tail in the place of the candidate, and the newer full block the older.
void PrefixIndex::become_candidate(NodeId n) {
  const NodeId rival = find_first(nodes_[n].parent, nodes_[n].ns, tokens_[n * block_size_]);
  if (rival != kNoNode) {
    if (full(rival)) {
      unlink_first(rival);
    } else {
      remove(rival);
    }
  }
  link_first(n);
}

void PrefixIndex::remove(NodeId n) {
  while (true) {
    Node& node = nodes_[n];
    if (full(n)) unlink_full(n);
    if (node.candidate) unlink_first(n);
    for (int g = 0; g < groups_; ++g) {
      BlockId& b = blocks_[n * groups_ + g];
      if (b != kNoBlock) pools_[g]->clear_node(std::exchange(b, kNoBlock));
    }
    const NodeId parent = node.parent;
    node.count = 0;
    node.parent = kNoNode;
    node.next_full = unused_;
    unused_ = n;
    --num_nodes_;
    if (parent == kNoNode) return;
    --nodes_[parent].children;
    if (!empty(parent)) return;
    n = parent;  // it stood only for its children
  }
}

bool PrefixIndex::empty(NodeId n) const {
  if (nodes_[n].children > 0 || nodes_[n].holds > 0) return false;
  for (int g = 0; g < groups_; ++g) {
    if (serves(n, g)) return false;
  }
  return true;
}

void PrefixIndex::hold(NodeId node) {
  if (node != kNoNode) ++nodes_[node].holds;
}

void PrefixIndex::unhold(NodeId node) {
  if (node == kNoNode) return;
  --nodes_[node].holds;
  if (empty(node)) remove(node);
}

bool PrefixIndex::evict(int group) {
  BlockPool& pool = *pools_[group];
  // Tables release their last block first, so the oldest block is a leaf already; a parent that was released
  // before its children gets another turn.
  for (int turns = pool.num_cached(); turns > 0; --turns) {
    const BlockId b = pool.oldest_cached();
    const NodeId n = pool.node(b);
    const bool whole = retention_[group].window == 0;
    if (whole && nodes_[n].children > 0) {
      pool.move_to_newest(b);
      continue;
    }
    if (whole || !full(n)) {
      remove(n);  // no hit can pass it any more: the other groups' blocks go too
    } else {
      blocks_[n * groups_ + group] = kNoBlock;
      pool.clear_node(b);
      if (empty(n)) remove(n);
    }
    return true;
  }
  return false;
}

void PrefixIndex::clear() {
  for (int g = 0; g < groups_; ++g) {
    while (evict(g)) continue;
  }
}

}  // namespace octavo
