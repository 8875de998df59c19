// FreedBlocks: bytes that the program has freed, and the streams that may still use them (details.md, Streams).
//
// Freed blocks stay in the occupancy, but are no obstacle to a request whose stream can be ordered after theirs. A
// block that only the stream of its place ever uses leaves nothing: see LiveRecord::kPrivate. One whose streams could
// not all be noted (no fence, too many) is retained for ever: memory lost, never data.
//
// Thread-safety: the engine's lock guards everything; as in StreamClocks, methods with a Lock& release it meanwhile.
// noexcept; memory from mmap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"
#include "allocator/base/set_pool.h"
#include "allocator/engine/bytes/occupancy.h"
#include "allocator/engine/order/stream_clocks.h"

namespace stalloc {

// For each block that other streams use, too, the set of those streams.
using ForeignUses = SetPool<StreamClocks::kMaxStreams>;

class FreedBlocks {
 public:
  using Lock = StreamClocks::Lock;

  // `max_listed`: blocks with foreign uses that marks look at.
  FreedBlocks(Occupancy& occupancy, StreamClocks& clocks, std::size_t max_listed);

  // `stream` uses the live block, too; kNoStream: some stream that could not be noted.
  void Note(LiveRecord& block, StreamIndex stream) noexcept;

  // The live block is about to be freed by a thread that runs on `stream`; kNoStream: on some that could not be noted.
  void NoteFreedOn(LiveRecord& block, StreamIndex stream) noexcept;

  // The block's free needs no trace: its bytes pass on in the order of its own stream.
  [[nodiscard]] static bool LeavesNothing(const LiveRecord& block) noexcept {
    return block.flags == LiveRecord::kPrivate && block.uses == 0;
  }
  // Frees the block, and records the events that are expected to be waited for: after streams that were noted, and
  // after its own and the one it was freed on if the plan hands its bytes to another stream.
  void Free(LiveRecord& block, Lock& lock) noexcept;
  // The same where nothing will be served any more: only what another device's streams may still use is remembered.
  void FreeForGood(LiveRecord& block) noexcept;

  // No block in [lo, hi) is live or retained.
  [[nodiscard]] bool OnlyFreedIn(std::uint32_t lo, std::uint32_t hi) const noexcept;
  // That, and all streams of other devices are known to be done with them: a wait for this device includes the
  // other streams.
  [[nodiscard]] bool OnlyThisDevicesIn(std::uint32_t lo, std::uint32_t hi) const noexcept;
  [[nodiscard]] static bool IsReusable(const LiveRecord& block) noexcept {
    return block.Is(LiveRecord::kFreed) && !block.Is(LiveRecord::kRetained);
  }
  // A request of `waiter` can have the block's bytes; `now`: without being made to wait for a stream.
  [[nodiscard]] bool CanBeHad(const LiveRecord& block, StreamIndex waiter, bool now) const noexcept;
  // Adds to `needs` what a request of `waiter` for [lo, hi) must be ordered after. False if a byte cannot be had.
  [[nodiscard]] bool Gather(std::uint32_t lo, std::uint32_t hi, StreamIndex waiter, StreamNeeds& needs) const noexcept;
  // [lo, hi) is `taker`'s now; kNoStream: nobody's. REQUIRES: Gather.
  void Take(std::uint32_t lo, std::uint32_t hi, StreamIndex taker) noexcept;
  // The block was never used, since its stream could not be ordered after `needs`: free again, and as before.
  void PutBack(std::uint32_t granule, const StreamNeeds& needs) noexcept;

  // At marks: lets go of what is known to be done.
  void Sweep(Lock& lock) noexcept;

  // Waits for streams of other devices, until they are known to be done with all that was freed. Those that cannot be
  // waited for now are left.
  void AwaitOtherDevices(Lock& lock) noexcept;

  // Blocks, or what is left of them, that wait for streams that were noted.
  [[nodiscard]] std::size_t pending() const noexcept { return pending_; }
  [[nodiscard]] Bytes pending_bytes() const noexcept { return pending_bytes_; }
  [[nodiscard]] std::uint64_t retained() const noexcept { return retained_; }

 private:
  // True if visit(stream, stamp) is for each whose work up to there `waiter` must run after to have the block's bytes.
  template <typename Visit>
  [[nodiscard]] bool AllStreams(const LiveRecord& block, StreamIndex waiter, Visit&& visit) const noexcept;
  template <typename Visit>
  [[nodiscard]] bool AllFreedIn(std::uint32_t lo, std::uint32_t hi, Visit&& visit) const noexcept;
  // True if visit(stream) is for each stream of another device that may still use the freed block.
  template <typename Visit>
  [[nodiscard]] bool AllOtherDevices(const LiveRecord& block, Visit&& visit) const noexcept;
  void Forget(LiveRecord& block) noexcept;
  void Retain(LiveRecord& block) noexcept;
  void Enlist(const LiveRecord& block) noexcept;
  void Delist(const LiveRecord& block) noexcept;
  void CutHead(const LiveRecord& block, std::uint32_t from) noexcept;
  void LetGoOfDone() noexcept;
  void LetGo(std::uint32_t granule) noexcept;

  Occupancy& occupancy_;
  StreamClocks& clocks_;
  ForeignUses uses_;
  MappedArray<std::uint32_t> listed_;  // granules of pending blocks, in no order; not all of them if there are too many
  std::size_t listed_count_ = 0;
  std::size_t pending_ = 0;
  Bytes pending_bytes_ = 0;
  std::uint64_t retained_ = 0;
};

}  // namespace stalloc
