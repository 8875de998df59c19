// What PlanEngine's sources share: plan_engine.cc (slots, frees, marks), unplanned_requests.cc (idle room beside the
// slots), engine_state.cc (what others are told). Allocate and Free take the lock; the other
// member functions run under it, and may open it where it is passed to them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "allocator/base/check.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/engine/dynamic_space.h"
#include "allocator/engine/freed_blocks.h"
#include "allocator/engine/idle_gaps.h"
#include "allocator/engine/kept_places.h"
#include "allocator/engine/last_frees.h"
#include "allocator/engine/matcher.h"
#include "allocator/engine/observations.h"
#include "allocator/engine/occupancy.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/engine/script_cursor.h"
#include "allocator/engine/stream_binding.h"
#include "allocator/engine/stream_clocks.h"
#include "allocator/engine/turns.h"
#include "allocator/engine/withdrawn_ranges.h"

namespace stalloc {

struct PlanEngine::Impl {
  using Lock = std::unique_lock<SpinMutex>;
  using Place = LoadedScript::Place;

  Impl(const DevicePlan& plan, void* base_address, StreamFence* fence, const DynamicSpaceOptions& options);

  // plan_engine.cc
  Allocation Allocate(Bytes requested, StreamHandle stream) noexcept;
  Bytes Free(void* pointer, std::optional<StreamHandle> current) noexcept;
  [[nodiscard]] MissReason FindPlace(Bytes requested, Place& place, std::int32_t& entry,
                                     Observations::Stamp& stamp) noexcept;
  [[nodiscard]] MissReason TakePlace(const Place& place, std::uint32_t granules, Bytes requested, std::int32_t entry,
                                     StreamHandle stream, Observations::Stamp stamp, Lock& lock) noexcept;
  [[nodiscard]] MissReason TakePlaceOfOtherTurn(Place& place, std::uint32_t granules, Bytes requested,
                                                std::int32_t entry, StreamHandle stream, Observations::Stamp stamp,
                                                Lock& lock) noexcept;
  [[nodiscard]] MissReason OccupyInOrder(const Place& place, Bytes requested, StreamHandle handle,
                                         Observations::Stamp stamp, Lock& lock) noexcept;
  [[nodiscard]] bool NeedsOfHome(StreamBinding& binding, StreamIndex stream, StreamNeeds& needs) noexcept;
  [[nodiscard]] bool OrderOrPutBack(std::uint32_t granule, StreamIndex stream, const StreamNeeds& needs,
                                    std::uint64_t& hits, Lock& lock) noexcept;
  void ForgetPrivacyOf(StreamIndex home) noexcept;
  [[nodiscard]] MissReason BackUp(const Place& place, std::uint32_t granules, std::int32_t entry, StreamHandle stream,
                                  Lock& lock) noexcept;
  [[nodiscard]] bool AskBacking(std::uint32_t granule, std::uint32_t granules, ArenaBacking::MayTake may_take,
                                Lock& lock) noexcept;
  // What everybody who places a block asks last, under the lock that places it: the engine serves, and there is memory
  // behind all of [lo, hi).
  [[nodiscard]] bool MayPlace(std::uint32_t lo, std::uint32_t hi) const noexcept {
    return active && hi <= std::max(plan_granules, dynamic.mapped()) &&
           (withdrawn.empty() || !withdrawn.Touches(lo, hi));
  }
  void Occupy(std::uint32_t granule, Bytes requested, StreamIndex stream, std::uint16_t flags,
              Observations::Stamp stamp = 0) noexcept;
  void Vacate(LiveRecord& block) noexcept;
  void Follow() noexcept;
  void TakeFittingTurn() noexcept;

  // unplanned_requests.cc
  Allocation ServeUnplanned(Bytes requested, StreamHandle stream, std::int32_t entry, Observations::Stamp stamp,
                            MissReason reason, Lock& lock) noexcept;
  [[nodiscard]] std::int32_t StillThere(std::int32_t entry) const noexcept;
  [[nodiscard]] bool Disordered() const noexcept;
  [[nodiscard]] IdleGaps::Window RoomFor(std::int32_t entry, MissReason reason) const noexcept;
  [[nodiscard]] Place FindKeptPlace(Granules granules, StreamHandle stream) const noexcept;
  [[nodiscard]] Place FindLentSlot(std::int32_t entry, Granules granules, StreamHandle stream) const noexcept;
  [[nodiscard]] bool TakeLentSlot(const Place& place, Bytes requested, StreamHandle stream, Lock& lock) noexcept;
  [[nodiscard]] std::uint32_t FindMapped(const DynamicSpace::Request& request) const noexcept;
  [[nodiscard]] std::uint32_t FindLateRoom(DynamicSpace::Request request) const noexcept;
  [[nodiscard]] bool HasMappedRoom(std::uint32_t granules, std::int32_t entry, StreamHandle stream) noexcept;
  [[nodiscard]] bool MayLieInTheWay(std::int32_t entry) const noexcept;
  [[nodiscard]] std::uint32_t FindRoom(DynamicSpace::Request request, std::int32_t entry, Lock& lock) noexcept;
  [[nodiscard]] std::uint32_t FindInTheWay(DynamicSpace::Request request, std::int32_t entry) const noexcept;
  [[nodiscard]] bool OccupyRoom(std::uint32_t granule, Bytes requested, StreamIndex stream, Observations::Stamp stamp,
                                Lock& lock) noexcept;

  // engine_state.cc
  [[nodiscard]] LiveBlock Describe(const LiveRecord& record) const noexcept;
  [[nodiscard]] std::string CheckLocked() const;
  void CheckNow() const noexcept;

  // kNoGranule if the address is not that of a granule of the arena.
  static constexpr std::uint32_t kNoGranule = 0xffffffffu;
  [[nodiscard]] std::uint32_t GranuleOf(const void* pointer) const noexcept {
    const auto offset = static_cast<Offset>(static_cast<const std::byte*>(pointer) - base);
    if (offset % kBlockAlignment != 0 || offset / kBlockAlignment >= arena_granules) return kNoGranule;
    return static_cast<std::uint32_t>(offset / kBlockAlignment);
  }

  alignas(64) mutable SpinMutex mutex;  // guards all below it
  std::byte* const base;
  const std::uint32_t arena_granules;
  const std::uint32_t plan_granules;  // the plan's height
  Matcher matcher;
  ScriptCursor cursor;
  Observations observations;
  Occupancy occupancy;
  StreamClocks clocks;
  FreedBlocks freed;
  WithdrawnRanges withdrawn;
  LastFrees last_frees;
  DynamicSpace dynamic;
  std::vector<StreamBinding> bindings;  // by the plan's ordinals
  const std::uint32_t main_stream;      // ordinal
  ArenaBacking* backing = nullptr;
  const KeptPlaces kept;
  const Turns turns;
  const Rules rules;
  EngineStats stats;
  mutable std::uint64_t checks = 0;
  bool active;  // serves
};

// In the checked build: walks everything after one operation in 256, so that tests of large arenas still end.
inline void PlanEngine::Impl::CheckNow() const noexcept {
  STALLOC_DCHECK((++checks & 255) != 0 || CheckLocked().empty());
}

}  // namespace stalloc
