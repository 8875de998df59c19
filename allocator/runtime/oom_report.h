// OomReports: the files that say afterwards why there was no memory; STALLOC_OOM_REPORT names its directory.
//
//   <directory>/rank00003.pid4711.oom1.json      one a failed request, at most kMost a process; temporary name, rename
//
//   report "stalloc out of memory", version 1, stalloc_version, rank, pid, device
//   request {bytes, stream}, device_memory {free, total} or null
//   figures {...}            as in the summary (docs/summary.md)
//   plan {...} or null       arena_base, arena_mapped_bytes, pending_*, gave_up, where the run is: script, phase,
//   entry,
//                            in_sync, expected_bytes ..., sync_losses, reanchorings
//   phase                    where the request came from: "set-up", "iter 3, F 0"
//   live_blocks [...]        address, bytes, requested, stream, from (arena, heap, upstream), pending; number of its
//                            request on the device, phase and layer that requested it; of the arena also
//                            entries [[script, entry], ...]: which requests of the plan it can be; live_blocks_omitted
//   events [...]             the last few thousand, oldest first: us (before the error), event, address, bytes, stream,
//                            from, miss
//
// Everything it needs is taken when it is made: Write takes no heap memory, and an error there is one warning, never
// more. Thread-safe (one report at a time). Bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "allocator/base/mapped_array.h"
#include "allocator/base/mutex.h"
#include "allocator/runtime/out_of_memory.h"

namespace stalloc {

class OomReports {
 public:
  static constexpr int kMost = 16;
  static constexpr std::size_t kMostBlocks =
      std::size_t{1} << 16;  // of the plan's arena, of other arenas and heap, and of upstream each, in a report

  OomReports(std::string directory, std::uint32_t rank);

  // The path of the report; empty when none was written. The text lives as long as the object.
  [[nodiscard]] const char* Write(const OutOfMemoryFacts& facts) noexcept;

  // The function that is called for each written report, with its path, on the thread whose request failed: it may add
  // to the file what it knows. Null: nobody.
  using Listener = void (*)(const char* path);
  void SetListener(Listener listener) noexcept { listener_.store(listener, std::memory_order_release); }
  void Notify(const char* path) const {
    if (const Listener listener = listener_.load(std::memory_order_acquire); listener != nullptr) listener(path);
  }

 private:
  const std::string directory_;
  const std::uint32_t rank_;
  std::atomic<Listener> listener_{nullptr};
  Mutex mutex_;  // guards what follows
  int written_ STALLOC_GUARDED_BY(mutex_) = 0;
  char paths_[kMost][1024] STALLOC_GUARDED_BY(mutex_) = {};
  MappedArray<LiveBlock> arena_blocks_ STALLOC_GUARDED_BY(mutex_){kMostBlocks};
  MappedArray<Ledger::UpstreamBlock> upstream_blocks_ STALLOC_GUARDED_BY(mutex_){kMostBlocks};
  MappedArray<LiveBlocks::Block> own_blocks_ STALLOC_GUARDED_BY(mutex_){kMostBlocks};
  MappedArray<RecentEvent> events_ STALLOC_GUARDED_BY(mutex_){RecentEvents::kCapacity};
};

}  // namespace stalloc
