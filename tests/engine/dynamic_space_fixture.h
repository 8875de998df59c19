// Requests beside the slots of plans that tests write down: what they get, and what the arena grows by.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "proto/model/plan.h"
#include "tests/engine/fake_fence.h"

namespace stalloc {

inline constexpr Bytes kUnit = 2 * kMiB;

inline Mark Iteration() { return {MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }
inline Mark Fence(MarkEdge edge) { return {MarkKind::kFence, edge, Pass::kNone, 0, 0, "eval", false}; }

inline constexpr Offset kNoPlace = ~Offset{0};
struct Expected {
  Bytes bytes = 0;
  Offset offset = kNoPlace;  // kNoPlace: it has no slot, and any size
  std::uint64_t life = 1;
  std::uint32_t stream = 0;
};

inline DevicePlan PlanOf(const std::vector<Expected>& requests) {
  DevicePlan plan;
  plan.cycle.emplace_back();
  for (const Expected& request : requests) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = request.bytes;
    entry.expected_life = request.life;
    entry.stream = request.stream;
    if (request.offset == kNoPlace) {
      entry.entry_class = EntryClass::kDynamic;
    } else {
      entry.slot = static_cast<std::uint32_t>(plan.slots.size());
      plan.slots.push_back({request.offset, request.bytes});
      plan.arena_bytes = std::max(plan.arena_bytes, request.offset + request.bytes);
    }
    plan.cycle[0].entries.push_back(entry);
  }
  return plan;
}

// Maps what is asked for, in steps of kUnit, as far as it may.
class GrowingBacking : public ArenaBacking {
 public:
  explicit GrowingBacking(Bytes most) : most_(most) {}
  void Serve(PlanEngine& engine) {
    engine_ = &engine;
    engine.SetBacking(this);
  }
  bool EnsureBacked(Offset offset, Bytes bytes, std::uint64_t /*now*/, Growth growth) noexcept override {
    ++asked_;
    allowed_growth_ = growth;
    if (RoundUp(offset + bytes, kUnit) > most_) return false;
    mapped_ = RoundUp(offset + bytes, kUnit);
    engine_->Extend(mapped_);
    return true;
  }
  [[nodiscard]] Bytes mapped() const { return mapped_; }
  [[nodiscard]] int asked() const { return asked_; }
  [[nodiscard]] Growth growth() const { return allowed_growth_; }  // of the last call

 private:
  const Bytes most_;
  PlanEngine* engine_ = nullptr;
  Bytes mapped_ = 0;
  int asked_ = 0;
  Growth allowed_growth_ = Growth::kForbidden;
};

class DynamicSpaceTest : public testing::Test {
 protected:
  static constexpr Bytes kLimit = 1024 * kMiB;

  PlanEngine& Start(const DevicePlan& plan, StreamFence* fence = nullptr, Bytes most = kLimit,
                    const Rules& rules = {}) {
    engine_ = std::make_unique<PlanEngine>(plan, kBase, fence,
                                           DynamicSpaceOptions{kLimit, plan.arena_bytes, /*least_bytes=*/kMiB, rules});
    growth_ = std::make_unique<GrowingBacking>(most);
    growth_->Serve(*engine_);
    engine_->OnMark(Iteration());
    return *engine_;
  }
  // Offset in MiB; -1: not served.
  std::int64_t Place(Bytes bytes, StreamHandle stream = 0) {
    const PlanEngine::Allocation allocation = engine_->Allocate(bytes, stream);
    EXPECT_EQ(engine_->CheckInvariants(), "");
    return allocation.pointer == nullptr
               ? -1
               : (static_cast<std::byte*>(allocation.pointer) - kBase) / static_cast<std::int64_t>(kMiB);
  }
  void Free(std::int64_t mib) { EXPECT_NE(engine_->Free(kBase + mib * static_cast<std::int64_t>(kMiB)), 0u); }

  std::unique_ptr<PlanEngine> engine_;
  std::unique_ptr<GrowingBacking> growth_;
};

}  // namespace stalloc
