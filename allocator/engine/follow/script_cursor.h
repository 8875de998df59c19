// ScriptCursor: which script of a plan is live, and at which of its phases, by the marks of the training loop
// (details.md, Marks and turns; planner/analysis/segments.h cuts traces by the same rules).
//
// Not thread-safe; OnMark is noexcept and takes no heap memory. Offsets and lengths in granules.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/engine/follow/script_index.h"
#include "allocator/engine/order/slot_streams.h"
#include "proto/model/mark_key.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc {

// One script of a plan: index for the matcher, places of its entries, phases. Read-only after it was built.
class LoadedScript {
 public:
  // Where an entry lies; no place if granules == 0.
  struct Place {
    Granules granule = 0;
    Granules granules = 0;
    std::uint16_t stream = 0;  // its number, see PlanStreams
    std::uint16_t flags = 0;   // of its slot, see FlagsOfSlots
  };
  static constexpr std::int32_t kNoPhase = -1;

  // `slot_flags`: FlagsOfSlots of the plan.
  LoadedScript(const Script& script, const std::vector<Slot>& slots, const std::vector<std::uint16_t>& slot_flags,
               const PlanStreams& streams);
  // With slots in graphs' pools, whose layouts begin at the granule `lent_begin`.
  void LoadLent(const Script& script, const std::vector<Slot>& lent_slots, const PlanStreams& streams,
                Granules lent_begin);

  [[nodiscard]] const ScriptIndex& index() const noexcept { return index_; }
  [[nodiscard]] const Place& PlaceOf(std::int32_t entry) const noexcept {
    return places_[static_cast<std::size_t>(entry)];
  }

  // In a graphs' pool; an entry that has such a place has no other.
  [[nodiscard]] Place LentPlaceOf(std::int32_t entry) const noexcept {
    return lent_places_.empty() ? Place{} : lent_places_[static_cast<std::size_t>(entry)];
  }

  [[nodiscard]] std::int32_t phases() const noexcept { return static_cast<std::int32_t>(phases_.size()) - 1; }
  // The first with this key after `after`, else before it; kNoPhase if there is neither.
  [[nodiscard]] std::int32_t FindPhase(std::uint64_t key, std::int32_t after) const noexcept;
  // The phase of a micro-batch that the script does not have, since it has fewer: that of an earlier one in order,
  // but not of the first, which leaves live what the others only add to.
  [[nodiscard]] std::int32_t FindAlike(const Mark& mark, std::int32_t after) const noexcept;
  [[nodiscard]] std::int32_t FirstEntry(std::int32_t phase) const noexcept { return At(phase).first_entry; }
  // One past its last entry.
  [[nodiscard]] std::int32_t EndOf(std::int32_t phase) const noexcept { return At(phase + 1).first_entry; }
  // kNoPhase has no entries either.
  [[nodiscard]] bool IsEmpty(std::int32_t phase) const noexcept {
    return phase == kNoPhase || FirstEntry(phase) == EndOf(phase);
  }

 private:
  struct PhaseStart {
    std::uint64_t key;
    std::int32_t first_entry;
  };
  [[nodiscard]] const PhaseStart& At(std::int32_t phase) const noexcept {
    return phases_[static_cast<std::size_t>(phase)];
  }

  ScriptIndex index_;
  std::vector<Place> places_;
  std::vector<Place> lent_places_;  // none, or one for each entry
  std::vector<PhaseStart> phases_;  // and the end
  // The greatest index of micro-batches whose marks differ in nothing else.
  std::unordered_map<std::uint64_t, std::int32_t> last_of_family_;
};

// Which copy of a plan's cycle the next iteration is (details.md, Marks and turns). Read-only after it was built.
class Turns {
 public:
  explicit Turns(const DevicePlan& plan);

  // There is but one.
  [[nodiscard]] bool empty() const noexcept { return turns_ < 2; }

  // Scripts of the cycle to leave out, so that most bytes lie where they are expected: 0, or up to another turn of
  // `script`, which the count says. is_live(granule): a block that is in use begins there. REQUIRES: not empty().
  template <typename IsLive>
  [[nodiscard]] std::uint32_t Skipped(std::uint32_t script, IsLive&& is_live) const noexcept {
    const auto scripts = static_cast<std::uint32_t>(crossing_.size());
    std::uint32_t skipped = 0;
    std::uint64_t most = 0;
    for (std::uint32_t skip = 0; skip < scripts; skip += period_) {
      std::uint64_t there = 0;
      for (const GranuleRange& place : crossing_[(script + skip) % scripts]) {
        there += is_live(place.lo) ? place.hi - place.lo : 0;
      }
      if (there <= most) continue;
      skipped = skip;
      most = there;
    }
    return skipped;
  }

 private:
  std::uint32_t turns_;
  std::uint32_t period_;                             // scripts of one turn
  std::vector<std::vector<GranuleRange>> crossing_;  // by script of the cycle: what is alive where it begins
};

// Where a run is that takes a plan up in the middle of its loop, between two iterations.
struct PlanStart {
  std::uint64_t iterations = 0;      // begun so far; 0: the run begins with the plan
  std::uint32_t explicit_kinds = 0;  // bits by MarkKind: the program places such marks itself
};

class ScriptCursor {
 public:
  // `lent_begin`: where graphs' pools are mapped.
  ScriptCursor(const DevicePlan& plan, const PlanStreams& streams, Granules lent_begin = 0);
  explicit ScriptCursor(const DevicePlan& plan) : ScriptCursor(plan, PlanStreams(plan)) {}
  // The run is there already. REQUIRES: no mark was seen.
  void StartAt(const PlanStart& start) noexcept;

  // True if the mark names a place: script() and entry() then say what is expected next. `at`: the entry that the run
  // is at, to which it may come back.
  bool OnMark(const Mark& mark, std::int32_t at = 0) noexcept;

  // The script of the cycle that the next iteration will follow; none if that is one of the prologue, or there is no
  // cycle.
  [[nodiscard]] std::optional<std::uint32_t> NextInCycle() const noexcept;
  // The next iteration follows the one that is so many scripts further around the cycle.
  void LeaveOut(std::uint32_t scripts) noexcept { turned_ += scripts; }

  // Null if the plan has no script for this time (an empty prologue before the first iteration).
  [[nodiscard]] const LoadedScript* script() const noexcept { return at_.script; }
  [[nodiscard]] std::int32_t entry() const noexcept { return at_.entry; }
  // For script(), counted through prologue and cycle; 0 if there is none.
  [[nodiscard]] std::uint32_t script_number() const noexcept {
    return script() != nullptr ? static_cast<std::uint32_t>(script() - scripts_.data()) : 0;
  }
  // For an entry of script(), counted through prologue and cycle.
  [[nodiscard]] std::uint64_t PositionOf(std::int32_t entry) const noexcept {
    return begins_[script_number()] + static_cast<std::uint64_t>(entry);
  }
  [[nodiscard]] std::int32_t phase() const noexcept { return at_.phase; }
  // The entries that can come before the next mark: [first, second). Of the whole script after a mark that it does not
  // have.
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> Expected() const noexcept;
  [[nodiscard]] bool fenced() const noexcept { return fence_depth_ > 0; }
  [[nodiscard]] bool in_prologue() const noexcept { return script_number() < prologue_; }
  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }

 private:
  bool Overruled(const Mark& mark) noexcept;
  bool BeginIteration(std::uint64_t key) noexcept;
  bool GoTo(std::int32_t phase) noexcept;
  bool GoAhead(std::uint64_t key) noexcept;
  bool GoToSetUp(std::uint64_t key, std::int32_t at) noexcept;
  bool ComeBack() noexcept;
  [[nodiscard]] const LoadedScript* ScriptOfIteration(std::uint64_t iteration) const noexcept;

  std::vector<LoadedScript> scripts_;        // prologue, then cycle
  const std::vector<std::uint32_t> begins_;  // entries before each script
  std::size_t prologue_;
  struct Spot {
    const LoadedScript* script = nullptr;
    std::int32_t phase = LoadedScript::kNoPhase;  // of the last mark that the script has
    std::int32_t entry = 0;
  };
  Spot at_;
  bool in_phase_ = false;  // the last mark was at_.phase's
  std::uint64_t iterations_ = 0;
  std::uint64_t turned_ = 0;  // scripts of the cycle that were left out
  std::uint32_t fence_depth_ = 0;
  Spot left_;  // for the set-up's, while that is followed in the first iteration
  std::int32_t set_up_phase_ = LoadedScript::kNoPhase;  // the last one that was gone to so
  std::array<bool, 256> explicit_seen_{};               // by kind
};

}  // namespace stalloc
