// LiveBefore: the blocks that are live while a recorder waits, so that its trace can begin with them.
//
// Blocks that came inside of a layer mark of no pass (an optimizer that makes its state) have it around them again, so
// that a plan's set-up has a phase of them: a run from scratch requests them in its first iteration
// (allocator/engine/follow/script_cursor.h).
//
// Fed by the writer thread with all events in their order. Not thread-safe. Memory: 80 bytes a live block.
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
  // `mark`: of a kMark.
  void Take(const RecordedEvent& event, const Mark* mark) {
    switch (event.kind) {
      case RecordedKind::kAlloc:
        uses_.erase(event.subject);
        live_.Insert(event.subject, {event, next_++, event.thread == open_thread_ ? open_ : 0});
        break;
      case RecordedKind::kFree:
        uses_.erase(event.subject);
        live_.Erase(event.subject);
        break;
      case RecordedKind::kRecordStream:
        if (live_.Find(event.subject) != nullptr) TakeUse(event);
        break;
      case RecordedKind::kMark:
        TakeMark(event, *mark);
        break;
      case RecordedKind::kHeld:
      case RecordedKind::kTensor:
      case RecordedKind::kUse:
      case RecordedKind::kBegin:
        break;
    }
  }

  // Calls visit(event, mark) with the allocation of each block, in their order, and after each its stream uses; around
  // those of one layer mark with its begin and its end (`mark`, else null). All happen at `time_ns` now.
  template <typename Visit>
  void ForEach(std::int64_t time_ns, Visit&& visit) const {
    std::vector<Block> blocks;
    live_.ForEach([&](std::uint64_t, const Block& block) { blocks.push_back(block); });
    std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.order < b.order; });
    std::uint32_t inside = 0;
    for (Block& block : blocks) {
      block.event.time_ns = time_ns;
      if (block.inside != inside) {
        VisitEdge(inside, MarkEdge::kEnd, block.event, visit);
        VisitEdge(block.inside, MarkEdge::kBegin, block.event, visit);
        inside = block.inside;
      }
      visit(block.event, nullptr);
      const auto uses = uses_.find(block.event.subject);
      if (uses == uses_.end()) continue;
      for (RecordedEvent use : uses->second) {
        use.time_ns = time_ns;
        visit(use, nullptr);
      }
    }
    if (inside != 0) VisitEdge(inside, MarkEdge::kEnd, blocks.back().event, visit);
  }

 private:
  struct Block {
    RecordedEvent event;
    std::uint64_t order;
    std::uint32_t inside;  // which opening of a mark; 0: none
  };

  void TakeMark(const RecordedEvent& event, const Mark& mark) {
    if (mark.kind != MarkKind::kLayer || mark.pass != Pass::kOther) return;
    open_ = 0;
    open_thread_ = event.thread;
    if (mark.edge != MarkEdge::kBegin) return;
    opened_.push_back(mark);
    open_ = static_cast<std::uint32_t>(opened_.size());
  }

  template <typename Visit>
  void VisitEdge(std::uint32_t opening, MarkEdge edge, const RecordedEvent& at, Visit& visit) const {
    if (opening == 0) return;
    Mark mark = opened_[opening - 1];
    mark.edge = edge;
    RecordedEvent event = at;
    event.kind = RecordedKind::kMark;
    event.flags = 0;
    visit(event, &mark);
  }

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
  std::vector<Mark> opened_;  // one each time that a mark was opened
  std::uint32_t open_ = 0;    // the one that is open, counted from 1; 0: none
  std::uint32_t open_thread_ = 0;
};

}  // namespace stalloc
