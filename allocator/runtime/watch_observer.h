// WatchObserver: the blocks of a device as BlockWatch looks at them (STALLOC_WATCH=1).
//
// Thread-safe.
#pragma once

#include <optional>

#include "allocator/driver/unmap_notice.h"
#include "allocator/runtime/block_observer.h"
#include "allocator/runtime/block_watch.h"
#include "allocator/runtime/device_runtime.h"
#include "allocator/runtime/device_sleep.h"
#include "allocator/runtime/spaces.h"

namespace stalloc {

class WatchObserver final : public BlockObserver {
 public:
  // All of them outlive this. `driver`: null: there is no arena.
  WatchObserver(DeviceIndex device, WatchMemory& memory, VmmDriver* driver, const Spaces& spaces,
                const Upstream& upstream)
      : BlockObserver(/*listens=*/true), watch_(device, &memory), spaces_(spaces), upstream_(upstream) {
    if (driver != nullptr) noticed_.emplace(*driver, watch_);
  }
  // Blocks fall asleep meanwhile. Before the first one.
  void SetSleep(DeviceSleep& sleep) noexcept { sleep_ = &sleep; }
  // The arena's driver. REQUIRES: there is a driver.
  [[nodiscard]] VmmDriver& driver() noexcept { return *noticed_; }
  [[nodiscard]] BlockWatch& watch() noexcept { return watch_; }

  // Captured work is neither filled nor checked: that would become a part of the graph.
  void Began(const BlockBegin& block) override {
    if (block.pointer == nullptr || block.origin == Origin::kCaptured) return;
    watch_.Allocated(block.pointer, block.requested, block.stream, PlaceOf(block.source));
  }
  // A block that sleeps has no bytes to look at.
  void Ends(const BlockEnd& block) noexcept override {
    if (block.bytes == 0) return;
    if (sleep_ == nullptr) return watch_.Freeing(block.pointer, block.current);
    const auto still = sleep_->HoldStill();
    const PlannedSpace* const space = spaces_.Of(block.pointer);
    if (space != nullptr && space->engine().FindLive(block.pointer).asleep) return watch_.Forget(block.pointer);
    watch_.Freeing(block.pointer, block.current);
  }
  void Used(const void* pointer, StreamHandle /*stream*/) noexcept override { watch_.StreamRecorded(pointer); }
  void OnMark(const Mark& mark) override { watch_.OnMark(mark); }

 private:
  [[nodiscard]] BlockWatch::Place PlaceOf(BlockSource source) const noexcept {
    if (source != BlockSource::kUpstream) return BlockWatch::Place::kArena;
    return upstream_.PadsBlocks() ? BlockWatch::Place::kPadded : BlockWatch::Place::kExact;
  }

  BlockWatch watch_;
  std::optional<UnmapNotice> noticed_;
  const Spaces& spaces_;
  const Upstream& upstream_;
  DeviceSleep* sleep_ = nullptr;
};

}  // namespace stalloc
