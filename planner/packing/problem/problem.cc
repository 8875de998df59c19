#include "planner/packing/problem/problem.h"

#include <algorithm>
#include <vector>

namespace stalloc::planner {
namespace {

struct LoadChange {
  Tick tick;
  bool begins;  // false sorts first: what ends at a tick is gone before anything begins there
  Bytes bytes;

  bool operator<(const LoadChange& other) const {
    return tick != other.tick ? tick < other.tick : begins < other.begins;
  }
};

void AddLifetime(const Lifetime& life, Bytes bytes, std::vector<LoadChange>& changes) {
  changes.push_back({life.begin, true, bytes});
  changes.push_back({life.end, false, bytes});
}

}  // namespace

Bytes LoadBound(const Problem& problem) {
  std::vector<LoadChange> changes;
  changes.reserve(2 * problem.blocks.size());
  for (const Block& block : problem.blocks) {
    AddLifetime(block.life, block.bytes, changes);
    if (block.second_life) AddLifetime(*block.second_life, block.bytes, changes);
  }
  std::sort(changes.begin(), changes.end());
  Bytes load = 0;
  Bytes greatest = 0;
  for (const LoadChange& change : changes) {
    load = change.begins ? load + change.bytes : load - change.bytes;
    greatest = std::max(greatest, load);
  }
  return greatest;
}

}  // namespace stalloc::planner
