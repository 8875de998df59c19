// Hand-made plans: scripts of requests, each with a slot of its own, so that every request can be a hit.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

class PlanBuilder {
 public:
  explicit PlanBuilder(DeviceIndex device = kCpuDevice) {
    plan_.device = device;
    plan_.streams.push_back({.ordinal = 0, .device = device, .handle = 0});
    plan_.prologue.emplace_back();  // init
    plan_.cycle.emplace_back();
  }

  // A block that init allocates and keeps.
  PlanBuilder& Persistent(Bytes bytes) {
    Add(&plan_.prologue[0], bytes, EntryClass::kPersistent);
    return *this;
  }
  // A block of init only.
  PlanBuilder& Init(Bytes bytes) {
    Add(&plan_.prologue[0], bytes, EntryClass::kStatic);
    return *this;
  }
  // A block that an evaluation allocates and leaves behind.
  PlanBuilder& Kept(Bytes bytes) {
    Add(&plan_.kept, bytes, EntryClass::kPersistent);
    return *this;
  }
  // A request of every iteration.
  PlanBuilder& Each(Bytes bytes) {
    Add(&plan_.cycle[0], bytes, EntryClass::kStatic);
    return *this;
  }
  // A request of every iteration that the plan leaves to upstream.
  PlanBuilder& EachUnplanned(Bytes bytes) {
    Add(&plan_.cycle[0], bytes, EntryClass::kDynamic);
    return *this;
  }
  // Makes the arena higher than its slots need.
  PlanBuilder& ArenaOf(Bytes bytes) {
    plan_.arena_bytes = bytes;
    return *this;
  }
  [[nodiscard]] DevicePlan Build() const { return plan_; }

 private:
  void Add(Script* script, Bytes bytes, EntryClass entry_class) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = BlockBytes(bytes);
    entry.entry_class = entry_class;
    entry.expected_life = entry_class == EntryClass::kPersistent ? 0 : 1;
    if (entry_class != EntryClass::kDynamic) {
      entry.slot = static_cast<std::uint32_t>(plan_.slots.size());
      plan_.slots.push_back({.offset = next_, .capacity = entry.bytes});
      next_ += entry.bytes;
      plan_.arena_bytes = std::max(plan_.arena_bytes, next_);
    }
    script->entries.push_back(entry);
  }

  DevicePlan plan_;
  Offset next_ = 0;
};

inline Mark IterationMark(int index) {
  return {.kind = MarkKind::kIteration, .edge = MarkEdge::kBegin, .index = index, .name = {}};
}

}  // namespace stalloc
