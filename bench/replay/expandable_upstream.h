// PyTorch's native allocator with expandable_segments, as upstream of a runtime that is replayed: the planner's model
// of it (planner/analysis/simulate_expandable.h says what it leaves out) decides where blocks lie and what is held.
//
// Nothing is mapped: the addresses are numbers that nobody may touch, in a part of the address space where the system
// maps nothing by itself. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "allocator/runtime/device_runtime.h"
#include "planner/analysis/simulate_expandable.h"

namespace stalloc::bench {

class ExpandableUpstream final : public Upstream {
 public:
  void* Allocate(Bytes requested, StreamHandle stream) override;
  void Free(void* pointer) noexcept override;
  void RecordStream(void* /*pointer*/, StreamHandle /*stream*/) override {}
  void ReleaseCached() noexcept override { model_.EmptyCaches(); }
  [[nodiscard]] Held HeldBytes() const override { return {held(), peak_}; }

  [[nodiscard]] Bytes held() const noexcept { return model_.held_bytes(); }

 private:
  planner::ExpandableSimulation model_;
  std::unordered_map<StreamHandle, std::uint32_t> streams_;  // ordinals: each stream has pools of its own
  std::unordered_map<const void*, planner::SimulatedAllocator::BlockId> live_;
  Bytes peak_ = 0;
};

}  // namespace stalloc::bench
