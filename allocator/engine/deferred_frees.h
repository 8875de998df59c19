// DeferredFrees: blocks that the program has freed, but that another stream may still use.
//
//        RecordStream(p, s)          Free(p)                  at a request for its bytes, or at a mark
//   live ------------------> noted ----------> pending: an event behind the work of each noted stream
//                                              |   all events done
//                                              +-----------------> free
//
// A pending block stays in the occupancy: its bytes are nobody else's until every event is done. An event that could
// not be recorded (a capture runs) is recorded at the next mark; until then its block stays. A block whose streams
// could not all be noted (no fence, or the pool of notes is full) is retained for ever: memory lost, never data.
//
// Thread-safety: the engine's lock guards everything here. Methods say whether the caller holds it. The fence is called
// without it; meanwhile `polling_` keeps a second thread from polling, and LiveRecord::kRecording keeps a block from
// being polled. noexcept; no heap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "allocator/base/mapped_array.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/engine/foreign_uses.h"
#include "allocator/engine/occupancy.h"
#include "allocator/engine/plan_engine.h"

namespace stalloc {

class DeferredFrees {
 public:
  using Lock = std::unique_lock<SpinMutex>;

  // `fence` may be null; `max_pending`: blocks that can be pending at once, `max_uses`: (block, stream) pairs.
  DeferredFrees(StreamFence* fence, Occupancy& occupancy, SpinMutex& mutex, std::size_t max_pending,
                std::size_t max_uses);

  // Notes that `stream` uses the block. REQUIRES: the lock is held.
  void Note(LiveRecord& block, StreamHandle stream) noexcept;
  // The block's free must wait. REQUIRES: the lock is held.
  [[nodiscard]] static bool MustWait(const LiveRecord& block) noexcept {
    return block.uses != 0 || block.Is(LiveRecord::kRetained);
  }

  // Makes the block pending; records the events with the lock released. `lock` holds on entry, not on return.
  void Free(std::uint32_t granule, Lock& lock) noexcept;

  // The block is freed, and never reused. REQUIRES: the lock is held.
  void Retain(LiveRecord& block) noexcept;

  // Every block in [lo, hi) is pending, and polling might release all of them. REQUIRES: the lock is held.
  [[nodiscard]] bool OnlyPendingIn(std::uint32_t lo, std::uint32_t hi) const noexcept;
  // Polls the pending blocks in [lo, hi), releases those that are done. `lock` holds on entry and on return, not
  // throughout.
  void ReclaimRange(std::uint32_t lo, std::uint32_t hi, Lock& lock) noexcept;
  // The same for all, and records what could not be recorded before.
  void ReclaimAll(Lock& lock) noexcept;

  [[nodiscard]] std::size_t pending() const noexcept { return pending_count_; }
  [[nodiscard]] Bytes pending_bytes() const noexcept { return pending_bytes_; }
  [[nodiscard]] std::uint64_t retained() const noexcept { return retained_; }

 private:
  static constexpr std::size_t kBatch = 32;      // uses that are polled with one release of the lock
  static constexpr std::size_t kMaxBlocks = 32;  // pending blocks under one request that are worth polling
  struct Polled {
    std::uint32_t granule = 0;
    std::uint32_t cell = 0;
    StreamHandle stream = 0;
    StreamFence::Event event = 0;  // 0: to be recorded
    bool done = false;
  };
  struct Batch {
    std::array<Polled, kBatch> uses;
    std::size_t size = 0;
  };

  void RecordEvents(std::uint32_t list, Lock& lock) noexcept;
  bool AddBlock(Batch& batch, std::uint32_t granule) const noexcept;
  void Poll(Batch& batch, Lock& lock) noexcept;
  void Apply(Batch& batch) noexcept;
  void AddPending(const LiveRecord& block) noexcept;
  void Release(const LiveRecord& block) noexcept;

  StreamFence* const fence_;
  Occupancy& occupancy_;
  SpinMutex& mutex_;
  ForeignUses uses_;
  MappedArray<std::uint32_t> pending_;  // granules, in no order
  std::size_t pending_count_ = 0;
  Bytes pending_bytes_ = 0;
  std::uint64_t retained_ = 0;
  bool polling_ = false;
};

}  // namespace stalloc
