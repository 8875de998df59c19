// AllocationHistory: what torch.cuda.memory._record_memory_history() records, for the blocks that we serve.
//
// The native allocator records its own blocks; this keeps the entries of ours, in a ring per device of the length that
// the caller requested, and the stack of every live block. snapshot() merges both by time. Also passes our entries on
// to trace trackers (NCCL's registration hook is one). Stacks are gathered before any lock is taken: that takes
// Python's GIL. Trackers are called with no lock held, so they may request a snapshot, or for memory; several threads
// may be in one, but never about the same block. Thread-safe. While nothing is recorded, the only cost is one relaxed
// load.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "allocator/base/log.h"

namespace stalloc {

class AllocationHistory {
 public:
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
  using Context = std::shared_ptr<c10::GatheredContext>;
  using RecordContext = c10::cuda::CUDACachingAllocator::RecordContext;
  using Tracker = c10::cuda::CUDACachingAllocator::AllocatorTraceTracker;

  struct Options {
    bool enabled = false;
    c10::cuda::CUDACachingAllocator::CreateContextFn gather = nullptr;
    std::size_t max_entries = 1;
    RecordContext when = RecordContext::NEVER;
    bool clear = false;
    std::vector<std::string> skip_actions;
  };
  // A block, or a segment.
  struct Subject {
    c10::DeviceIndex device = 0;
    const void* address = nullptr;
    std::size_t bytes = 0;  // as requested
    void* stream = nullptr;
  };

  void Configure(const Options& options);
  void AddTracker(Tracker tracker);

  // Somebody wants entries: only then call what follows.
  [[nodiscard]] bool active() const noexcept { return active_.load(std::memory_order_relaxed); }
  // Frees of the bytes are complete before it: the new owner waits for their streams. Throws what a tracker
  // threw, after all were notified, as the native allocator's request does. Of all other events a warning says so:
  // neither a free nor a change of the arena can fail on its account.
  void OnAlloc(const Subject& subject, const std::string& user_metadata);
  // Another stream may use the live block beyond its free.
  void OnForeignUse(const void* address);
  // At the free request. It is complete at once, unless there was a foreign use.
  void OnFree(const Subject& subject, const std::string& user_metadata);
  void OnSegment(Entry::Action action, const Subject& subject, Context context = nullptr);
  // Words of the program on a live block, under the action that torch has for them.
  void OnAnnotation(Entry::Action action, const Subject& subject, const std::string& metadata);
  // The stack of a caller who changes segments, where stacks of all actions are recorded. Call it with no lock held.
  [[nodiscard]] Context GatherForSegments() const { return Gather(RecordContext::ALL); }

  // Frees that were requested and not completed.
  [[nodiscard]] std::size_t Incomplete(c10::DeviceIndex device) const;
  // Completes those whose blocks are not `held`: addresses of blocks that live or wait for other streams, ascending.
  void CompleteUnlessHeld(c10::DeviceIndex device, const std::vector<std::size_t>& held);

  // Entries of a device, oldest first; times are still approximate-clock ticks.
  [[nodiscard]] std::vector<Entry> Entries(c10::DeviceIndex device) const;
  // The stack of the live block at this address; null when none was recorded.
  [[nodiscard]] Context BlockContext(const void* address) const;

 private:
  struct PendingFree {
    Subject subject;
    Context context;
    std::string user_metadata;
  };
  // By address; ascending, so that those in a range are found.
  using PendingFrees = std::map<std::size_t, PendingFree>;

  using Trackers = std::vector<Tracker>;

  [[nodiscard]] Context Gather(RecordContext level) const;
  void CompleteIn(const Subject& subject);
  void AddFree(Entry::Action action, const PendingFree& free);
  // What the first tracker that failed threw.
  std::exception_ptr Add(Entry::Action action, const Subject& subject, Context context,
                         const std::string& user_metadata);
  // And says so.
  void AddAnyway(Entry::Action action, const Subject& subject, Context context, const std::string& user_metadata);
  [[nodiscard]] std::shared_ptr<const Trackers> Record(const Entry& entry);

  std::atomic<bool> active_{false};
  std::atomic<c10::cuda::CUDACachingAllocator::CreateContextFn> gather_{nullptr};
  std::atomic<RecordContext> when_{RecordContext::NEVER};

  LogThrottle failures_{1};   // of trackers
  mutable std::mutex mutex_;  // guards what follows
  bool recording_ = false;
  std::size_t max_entries_ = 1;
  std::vector<Entry::Action> skipped_;
  std::unordered_map<c10::DeviceIndex, std::deque<Entry>> entries_;
  std::unordered_map<const void*, Context> contexts_;
  std::unordered_set<const void*> used_elsewhere_;  // live blocks
  PendingFrees pending_;
  std::shared_ptr<const Trackers> trackers_ = std::make_shared<Trackers>();
};

}  // namespace stalloc
