#include "planner/analysis/replay.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/alignment.h"
#include "planner/analysis/launch_watch.h"
#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

// Blocks in the arena by offset, and who held each byte before.
class ArenaModel {
 public:
  // The live block that holds a byte of [begin, end), as Put() named it.
  [[nodiscard]] std::optional<std::uint32_t> LiveIn(Offset begin, Offset end) const {
    auto next = live_.lower_bound(end);
    if (next == live_.begin()) return std::nullopt;
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
  Player(const DeviceTrace& device, const DevicePlan& plan, std::span<const Alignment* const> known, LaunchWatch watch)
      : device_(device), plan_(plan), alignments_(known.begin(), known.end()), watch_(std::move(watch)) {}

  absl::StatusOr<Replay> Play() {
    replay_.segments.resize(device_.segments.size());
    places_.resize(device_.allocations.size(), kNoSlot);
    if (!plan_.lent_slots.empty()) replay_.lent.resize(device_.allocations.size());
    alignments_.resize(device_.segments.size());
    for (std::uint32_t segment = 0; segment < device_.segments.size(); ++segment) {
      if (alignments_[segment] == nullptr && !IsExact(segment)) {
        found_.push_back(Align(MakeSequence(ScriptOfSegment(plan_, segment)), MakeSequence(device_, segment)));
        alignments_[segment] = &found_.back();
      }
      if (absl::Status status = CheckIdentity(segment); !status.ok()) return status;
    }
    Sweep sweep(device_);
    for (SweepStep step; sweep.Next(&step);) {
      if (absl::Status status = Launch(step.event); !status.ok()) return status;
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
    if (!IsExact(segment)) return absl::OkStatus();
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
      if (absl::Status status = Serve(index); !status.ok()) return status;
    }
    Bytes& live = LiveOf(index);
    live += allocation.bytes;
    Bytes& peak = IsLent(index)               ? replay_.lent_peak_bytes
                  : places_[index] == kNoSlot ? replay_.upstream_peak_bytes
                                              : replay_.planned_peak_bytes;
    peak = std::max(peak, live);
    replay_.unlent_peak_bytes = std::max(replay_.unlent_peak_bytes, live_ - lent_live_);
    return absl::OkStatus();
  }

  [[nodiscard]] bool IsLent(std::uint32_t index) const { return !replay_.lent.empty() && replay_.lent[index]; }

  // For where the block lies.
  [[nodiscard]] Bytes& LiveOf(std::uint32_t index) {
    if (IsLent(index)) return lent_live_;
    return places_[index] == kNoSlot ? upstream_ : arena_live_;
  }

  // Those before the event: what they need must be free.
  absl::Status Launch(std::uint64_t event) {
    absl::Status status;
    watch_.AdvanceTo(event, [&](const ByteRanges& needs) {
      for (const ByteRange& bytes : needs) {
        const auto found = lent_.LiveIn(bytes.begin, bytes.end);
        if (!found.has_value()) continue;
        ++replay_.moved;
        const Allocation& allocation = device_.allocations[*found];
        if (IsExact(allocation.segment))
          status.Update(InTheWay(allocation, places_[*found], "lives when a launch needs"));
      }
    });
    return status;
  }

  absl::Status InTheWay(const Allocation& allocation, std::uint32_t slot, const char* what) const {
    const Slot& lent = plan_.lent_slots[slot];
    return absl::InvalidArgumentError(absl::StrCat("script ", allocation.segment, " entry ", allocation.ordinal, " ",
                                                   what, " bytes of lent slot ", slot, " [", lent.offset, ", ",
                                                   lent.offset + lent.capacity, ")"));
  }

  // For an entry that is lent, and fits.
  absl::Status ServeLent(std::uint32_t index, std::uint32_t number) {
    const Allocation& allocation = device_.allocations[index];
    SegmentReplay& counts = replay_.segments[allocation.segment];
    const Slot& slot = plan_.lent_slots[number];
    const bool is_early = allocation.segment < plan_.prologue.size();
    if (is_early && !watch_.AreFilled()) return InTheWay(allocation, number, "comes before pools are filled, in");
    const bool waits = watch_.Waits({slot.offset, slot.offset + slot.capacity});
    if (const auto other = lent_.LiveIn(slot.offset, slot.offset + slot.capacity); waits || other.has_value()) {
      ++counts.occupied;
      if (!IsExact(allocation.segment)) return absl::OkStatus();
      return InTheWay(allocation, number, waits ? "comes while a graph waits for" : "overlaps a live block in");
    }
    ++counts.hits;
    counts.hits_over_block += allocation.requested() > kBlockAlignment;
    places_[index] = number;
    replay_.lent[index] = true;
    lent_.Put(slot.offset, slot.offset + slot.capacity, index);
    return absl::OkStatus();
  }

  // As the engine gives them (LateRooms, allocator/engine/place/idle_gaps.h).
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
    const bool lent = entry.lent_slot != kNoSlot;
    if (entry.slot == kNoSlot && !lent) {
      ++counts.unplanned;
      return absl::OkStatus();
    }
    const Slot& slot = lent ? plan_.lent_slots[entry.lent_slot] : plan_.slots[entry.slot];
    const bool varies = entry.entry_class == EntryClass::kDynamic;
    const bool fits = varies ? allocation.bytes <= slot.capacity : allocation.bytes == entry.bytes;
    if (!fits || entry.stream != allocation.stream) {
      ++counts.unmatched;
      return absl::OkStatus();
    }
    if (lent) return ServeLent(index, entry.lent_slot);
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
    LiveOf(index) -= allocation.bytes;
    if (IsLent(index)) {
      lent_.Remove(plan_.lent_slots[places_[index]].offset);
    } else if (places_[index] != kNoSlot) {
      arena_.Remove(plan_.slots[places_[index]].offset);
    }
  }

  const DeviceTrace& device_;
  const DevicePlan& plan_;
  std::vector<const Alignment*> alignments_;  // by segment; null where requests are the script's entries
  std::deque<Alignment> found_;
  LaunchWatch watch_;
  std::vector<std::uint32_t> places_;  // slot of each allocation, or lent slot; kNoSlot: upstream
  ArenaModel arena_;                   // by slots
  ArenaModel lent_;                    // by allocations
  Replay replay_;
  Bytes live_ = 0;
  Bytes arena_live_ = 0;
  Bytes lent_live_ = 0;
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
                                   std::span<const Alignment* const> known, const LendablePools* pools) {
  if (plan.cycle.empty() || device.segments.size() <= plan.prologue.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the trace has too few iterations for the plan: segments ",
                                                   device.segments.size(), ", prologue ", plan.prologue.size(),
                                                   ", cycle ", plan.cycle.size()));
  }
  if (absl::Status status = CheckInsideArena(plan); !status.ok()) return status;
  absl::StatusOr<LaunchWatch> watch = pools == nullptr ? LaunchWatch() : LaunchWatch::Create(*pools, plan);
  if (!watch.ok()) return watch.status();
  return Player(device, plan, known, *std::move(watch)).Play();
}

}  // namespace stalloc::planner
