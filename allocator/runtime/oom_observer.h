// OomObserver: keeps the history for a report of an out-of-memory error: recent events and live
// blocks.
//
// Thread-safe. Bytes.
#pragma once

#include "allocator/runtime/block_observer.h"
#include "allocator/runtime/live_blocks.h"
#include "allocator/runtime/recent_events.h"

namespace stalloc {

class OomObserver final : public BlockObserver {
 public:
  OomObserver() : BlockObserver(/*listens=*/true) {}
  void Began(const BlockBegin& block) override;
  void Ends(const BlockEnd& block) noexcept override;
  void Used(const void* pointer, StreamHandle stream) noexcept override;
  void OnMark(const Mark& mark) override;
  void OutOfMemory(Bytes requested, StreamHandle stream) noexcept;

  [[nodiscard]] const RecentEvents& events() const noexcept { return events_; }
  [[nodiscard]] const LiveBlocks& live() const noexcept { return live_; }

 private:
  void Note(RecentEvent event) noexcept;

  RecentEvents events_;
  LiveBlocks live_;
};

}  // namespace stalloc
