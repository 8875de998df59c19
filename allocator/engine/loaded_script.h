// LoadedScript: one script of a plan as the engine follows it: index for the matcher, places of its entries, phases.
//
// Built when the plan is loaded; read-only and shared afterwards. Offsets and lengths in granules of kBlockAlignment
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/engine/script_index.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc {

// Equal for marks that name the same point of a loop. Compares kind and edge; but for iterations also pass, chunk,
// index and who placed it (a hook's optimizer mark comes at another point than the script's own); for layers and fences
// also the name.
[[nodiscard]] std::uint64_t MarkKey(const Mark& mark) noexcept;
// As if its index were this one.
[[nodiscard]] std::uint64_t MarkKey(const Mark& mark, std::int32_t index) noexcept;

class LoadedScript {
 public:
  // Where an entry lies; no place if granules == 0.
  struct Place {
    std::uint32_t granule = 0;
    std::uint32_t granules = 0;
    std::uint16_t stream = 0;  // ordinal
    std::uint16_t flags = 0;   // of its slot, see FlagsOfSlots
  };
  static constexpr std::int32_t kNoPhase = -1;

  // `slot_flags`: FlagsOfSlots of the plan.
  LoadedScript(const Script& script, const std::vector<Slot>& slots, const std::vector<std::uint16_t>& slot_flags);

  [[nodiscard]] const ScriptIndex& index() const noexcept { return index_; }
  [[nodiscard]] const Place& PlaceOf(std::int32_t entry) const noexcept {
    return places_[static_cast<std::size_t>(entry)];
  }

  [[nodiscard]] std::int32_t phases() const noexcept { return static_cast<std::int32_t>(phases_.size()); }
  // First phase with this key after `after`, else the first before it; kNoPhase if there is neither.
  [[nodiscard]] std::int32_t FindPhase(std::uint64_t key, std::int32_t after) const noexcept;
  // The phase of a micro-batch that the script does not have, since it has fewer: that of an earlier one in its turn,
  // but not of the first, which leaves behind what the others only add to.
  [[nodiscard]] std::int32_t FindAlike(const Mark& mark, std::int32_t after) const noexcept;
  [[nodiscard]] std::int32_t FirstEntry(std::int32_t phase) const noexcept { return At(phase).first_entry; }
  // One past its last entry.
  [[nodiscard]] std::int32_t EndOf(std::int32_t phase) const noexcept {
    return phase + 1 < phases() ? FirstEntry(phase + 1) : index_.size();
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
  std::vector<PhaseStart> phases_;
  struct Family {  // of micro-batches whose marks differ in their index only
    std::uint64_t key;
    std::int32_t last;  // index
  };
  std::vector<Family> families_;
};

}  // namespace stalloc
