// LiveBefore: the blocks that are live while a recorder waits, so that its trace can begin with them.
//
// Fed by the writer thread with all events in their order. Not thread-safe. Memory: 72 bytes a live block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "allocator/base/open_table.h"
#include "allocator/record/event_ring.h"

namespace stalloc {

class LiveBefore {
 public:
  void Take(const RecordedEvent& event) {
    switch (event.kind) {
      case RecordedKind::kAlloc:
        uses_.erase(event.subject);
        live_.Insert(event.subject, {event, next_++});
        break;
      case RecordedKind::kFree:
        uses_.erase(event.subject);
        live_.Erase(event.subject);
        break;
      case RecordedKind::kRecordStream:
        if (live_.Find(event.subject) != nullptr) TakeUse(event);
        break;
      case RecordedKind::kMark:
      case RecordedKind::kHeld:
      case RecordedKind::kTensor:
      case RecordedKind::kBegin:
        break;
    }
  }

  // Calls visit(event) with the allocation of each block, in their order, and behind each its stream uses. All happen
  // at `time_ns` now.
  template <typename Visit>
  void ForEach(std::int64_t time_ns, Visit&& visit) const {
    std::vector<Block> blocks;
    live_.ForEach([&](std::uint64_t, const Block& block) { blocks.push_back(block); });
    std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.order < b.order; });
    for (Block& block : blocks) {
      block.event.time_ns = time_ns;
      visit(block.event);
      const auto uses = uses_.find(block.event.subject);
      if (uses == uses_.end()) continue;
      for (RecordedEvent use : uses->second) {
        use.time_ns = time_ns;
        visit(use);
      }
    }
  }

 private:
  struct Block {
    RecordedEvent event;
    std::uint64_t order;
  };

  // One of each stream is enough.
  void TakeUse(const RecordedEvent& event) {
    std::vector<RecordedEvent>& uses = uses_[event.subject];
    const auto known =
        std::find_if(uses.begin(), uses.end(), [&](const RecordedEvent& use) { return use.stream == event.stream; });
    if (known == uses.end()) uses.push_back(event);
  }

  OpenTable<Block> live_{1u << 12};  // by address
  std::unordered_map<std::uint64_t, std::vector<RecordedEvent>> uses_;
  std::uint64_t next_ = 0;
};

}  // namespace stalloc
