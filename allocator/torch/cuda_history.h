// AllocationHistory: what torch.cuda.memory._record_memory_history() records, for the blocks that we serve.
//
// The native allocator records its own blocks; this keeps the entries of ours, in a ring per device of the length that
// the caller asked for, and the stack of every live block. snapshot() merges both by time. Also passes our entries on
// to trace trackers (NCCL's registration hook is one). Stacks are gathered before any lock is taken: that takes
// Python's GIL. Thread-safe. While nothing is recorded, the only cost is one relaxed load.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace stalloc {

class AllocationHistory {
 public:
  using Entry = c10::CachingDeviceAllocator::TraceEntry;
  using Context = std::shared_ptr<c10::GatheredContext>;
  using RecordContext = c10::CachingDeviceAllocator::RecordContext;
  using Tracker = c10::CachingDeviceAllocator::AllocatorTraceTracker;

  struct Options {
    bool enabled = false;
    c10::CachingDeviceAllocator::CreateContextFn gather = nullptr;
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
  void OnAlloc(const Subject& subject, const std::string& user_metadata);
  // At the free request. Our blocks have no separate completion: one that other streams still use is kept back by the
  // engine.
  void OnFree(const Subject& subject, const std::string& user_metadata);
  void OnSegment(Entry::Action action, const Subject& subject);

  // Entries of a device, oldest first; times are still approximate-clock ticks.
  [[nodiscard]] std::vector<Entry> Entries(c10::DeviceIndex device) const;
  // The stack of the live block at this address; null when none was recorded.
  [[nodiscard]] Context BlockContext(const void* address) const;

 private:
  [[nodiscard]] Context Gather(RecordContext level) const;
  void Add(Entry entry);

  std::atomic<bool> active_{false};
  std::atomic<c10::CachingDeviceAllocator::CreateContextFn> gather_{nullptr};
  std::atomic<RecordContext> when_{RecordContext::NEVER};

  mutable std::mutex mutex_;  // guards what follows
  bool recording_ = false;
  std::size_t max_entries_ = 1;
  std::vector<Entry::Action> skipped_;
  std::unordered_map<c10::DeviceIndex, std::deque<Entry>> entries_;
  std::unordered_map<const void*, Context> contexts_;
  std::vector<Tracker> trackers_;
};

}  // namespace stalloc
