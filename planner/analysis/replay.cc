#include "planner/analysis/replay.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/alignment.h"
#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

// Blocks in the arena by offset, and who held each byte before.
class ArenaModel {
 public:
  // The live block that holds a byte of [begin, end).
  [[nodiscard]] std::optional<std::uint32_t> LiveIn(Offset begin, Offset end) const {
    auto next = live_.lower_bound(end);
    if (next == live_.begin()) {
      return std::nullopt;
    }
    next = std::prev(next);
    return next->second.end > begin ? std::optional(next->second.slot) : std::nullopt;
  }

  void Put(Offset begin, Offset end, std::uint32_t slot) { live_[begin] = {end, slot}; }
  void Remove(Offset begin) { live_.erase(begin); }

 private:
  struct Range {
    Offset end = 0;
    std::uint32_t slot = 0;
  };
  std::map<Offset, Range> live_;
};

class Player {
 public:
  Player(const DeviceTrace& device, const DevicePlan& plan, std::span<const Alignment* const> known)
      : device_(device), plan_(plan), alignments_(known.begin(), known.end()) {}

  absl::StatusOr<Replay> Play() {
    replay_.segments.resize(device_.segments.size());
    places_.resize(device_.allocations.size(), kNoSlot);
    alignments_.resize(device_.segments.size());
    for (std::uint32_t segment = 0; segment < device_.segments.size(); ++segment) {
      if (alignments_[segment] == nullptr && !IsExact(segment)) {
        found_.push_back(Align(MakeSequence(ScriptOfSegment(plan_, segment)), MakeSequence(device_, segment)));
        alignments_[segment] = &found_.back();
      }
      if (absl::Status status = CheckIdentity(segment); !status.ok()) {
        return status;
      }
    }
    Sweep sweep(device_);
    for (SweepStep step; sweep.Next(&step);) {
      if (step.is_free) {
        Free(step.allocation);
      } else if (absl::Status status = Allocate(step.allocation); !status.ok()) {
        return status;
      }
    }
    return replay_;
  }

 private:
  // The prologue and the first script of the cycle must be what was traced.
  [[nodiscard]] bool IsExact(std::uint32_t segment) const { return segment <= plan_.prologue.size(); }

  absl::Status CheckIdentity(std::uint32_t segment) const {
    if (!IsExact(segment)) {
      return absl::OkStatus();
    }
    const auto& requests = device_.segments[segment].allocations;
    const Script& script = ScriptOfSegment(plan_, segment);
    if (requests.size() != script.entries.size()) {
      return absl::InvalidArgumentError(absl::StrCat("script ", segment,
                                                     " does not have as many entries as were traced: plan ",
                                                     script.entries.size(), ", trace ", requests.size()));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Allocation& allocation = device_.allocations[requests[i]];
      if (allocation.bytes != script.entries[i].bytes || allocation.stream != script.entries[i].stream) {
        return absl::InvalidArgumentError(absl::StrCat("script ", segment, " entry ", i,
                                                       " is not the traced request: plan ", script.entries[i].bytes,
                                                       " bytes on stream ", script.entries[i].stream, ", trace ",
                                                       allocation.bytes, " bytes on stream ", allocation.stream));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Allocate(std::uint32_t index) {
    const Allocation& allocation = device_.allocations[index];
    live_ += allocation.bytes;
    replay_.peak_live_bytes = std::max(replay_.peak_live_bytes, live_);
    if (allocation.fenced) {
      TakeKeptPlace(index);
    } else if (!allocation.outside) {
      if (absl::Status status = Serve(index); !status.ok()) {
        return status;
      }
    }
    Bytes& live = places_[index] == kNoSlot ? upstream_ : arena_live_;
    Bytes& peak = places_[index] == kNoSlot ? replay_.upstream_peak_bytes : replay_.planned_peak_bytes;
    live += allocation.bytes;
    peak = std::max(peak, live);
    return absl::OkStatus();
  }

  // As the engine gives them (allocator/engine/fence_rooms.h).
  void TakeKeptPlace(std::uint32_t index) {
    const Allocation& allocation = device_.allocations[index];
    for (const Entry& entry : plan_.kept.entries) {
      if (entry.slot == kNoSlot) continue;
      const Slot& slot = plan_.slots[entry.slot];
      const bool fits = entry.bytes == allocation.bytes && entry.stream == allocation.stream;
      if (!fits || arena_.LiveIn(slot.offset, slot.offset + slot.capacity).has_value()) continue;
      places_[index] = entry.slot;
      arena_.Put(slot.offset, slot.offset + allocation.bytes, entry.slot);
      return;
    }
  }

  absl::Status Serve(std::uint32_t index) {
    const Allocation& allocation = device_.allocations[index];
    SegmentReplay& counts = replay_.segments[allocation.segment];
    const bool over_block = allocation.requested() > kBlockAlignment;
    ++counts.requests;
    counts.requests_over_block += over_block;
    const Script& script = ScriptOfSegment(plan_, allocation.segment);
    const std::uint32_t position =
        IsExact(allocation.segment) ? allocation.ordinal : alignments_[allocation.segment]->ToLeft(allocation.ordinal);
    if (position == kNone) {
      ++counts.unmatched;
      return absl::OkStatus();
    }
    const Entry& entry = script.entries[position];
    if (entry.slot == kNoSlot) {
      ++counts.unplanned;
      return absl::OkStatus();
    }
    const Slot& slot = plan_.slots[entry.slot];
    const bool varies = entry.entry_class == EntryClass::kDynamic;
    const bool fits = varies ? allocation.bytes <= slot.capacity : allocation.bytes == entry.bytes;
    if (!fits || entry.stream != allocation.stream) {
      ++counts.unmatched;
      return absl::OkStatus();
    }
    if (const auto other = arena_.LiveIn(slot.offset, slot.offset + slot.capacity); other.has_value()) {
      ++counts.occupied;
      return IsExact(allocation.segment) ? Overlap(allocation, entry.slot, *other) : absl::OkStatus();
    }
    ++counts.hits;
    counts.hits_over_block += over_block;
    places_[index] = entry.slot;
    arena_.Put(slot.offset, slot.offset + slot.capacity, entry.slot);
    return absl::OkStatus();
  }

  absl::Status Overlap(const Allocation& allocation, std::uint32_t slot, std::uint32_t other) const {
    const auto describe = [&](std::uint32_t index) {
      const Slot& s = plan_.slots[index];
      return absl::StrCat("slot ", index, " [", s.offset, ", ", s.offset + s.capacity, ")");
    };
    return absl::InvalidArgumentError(absl::StrCat("script ", allocation.segment, " entry ", allocation.ordinal,
                                                   " overlaps a live block: ", describe(slot), ", ", describe(other)));
  }

  void Free(std::uint32_t index) {
    const Allocation& allocation = device_.allocations[index];
    live_ -= allocation.bytes;
    if (places_[index] == kNoSlot) {
      upstream_ -= allocation.bytes;
      return;
    }
    arena_live_ -= allocation.bytes;
    arena_.Remove(plan_.slots[places_[index]].offset);
  }

  const DeviceTrace& device_;
  const DevicePlan& plan_;
  std::vector<const Alignment*> alignments_;  // by segment; null where requests are the script's entries
  std::deque<Alignment> found_;
  std::vector<std::uint32_t> places_;  // slot of each allocation; kNoSlot: upstream
  ArenaModel arena_;
  Replay replay_;
  Bytes live_ = 0;
  Bytes arena_live_ = 0;
  Bytes upstream_ = 0;
};

absl::Status CheckInsideArena(const DevicePlan& plan) {
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].offset + plan.slots[i].capacity > plan.arena_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("slot ", i, " leaves the arena: end ",
                                                     plan.slots[i].offset + plan.slots[i].capacity, ", arena ",
                                                     plan.arena_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const Script& ScriptOfSegment(const DevicePlan& plan, std::size_t segment) {
  return segment < plan.prologue.size() ? plan.prologue[segment]
                                        : plan.cycle[(segment - plan.prologue.size()) % plan.cycle.size()];
}

absl::StatusOr<Replay> ReplayTrace(const DeviceTrace& device, const DevicePlan& plan,
                                   std::span<const Alignment* const> known) {
  if (plan.cycle.empty() || device.segments.size() <= plan.prologue.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the trace has too few iterations for the plan: segments ",
                                                   device.segments.size(), ", prologue ", plan.prologue.size(),
                                                   ", cycle ", plan.cycle.size()));
  }
  if (absl::Status status = CheckInsideArena(plan); !status.ok()) {
    return status;
  }
  return Player(device, plan, known).Play();
}

}  // namespace stalloc::planner
