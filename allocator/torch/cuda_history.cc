#include "allocator/torch/cuda_history.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <utility>

namespace stalloc {

void AllocationHistory::Configure(const Options& options) {
  std::vector<Entry::Action> skipped;
  for (const std::string& action : options.skip_actions) {
    skipped.push_back(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
  }
  const std::lock_guard lock(mutex_);
  recording_ = options.enabled;
  max_entries_ = std::max<std::size_t>(1, options.max_entries);
  skipped_ = std::move(skipped);
  gather_.store(options.enabled ? options.gather : nullptr);
  when_.store(options.enabled && options.gather != nullptr ? options.when : RecordContext::NEVER);
  if (!options.enabled || options.clear) entries_.clear();
  if (!options.enabled) contexts_.clear();
  active_.store(recording_ || !trackers_.empty());
}

void AllocationHistory::AddTracker(Tracker tracker) {
  const std::lock_guard lock(mutex_);
  trackers_.push_back(std::move(tracker));
  active_.store(true);
}

void AllocationHistory::OnAlloc(const Subject& subject, const std::string& user_metadata) {
  Context context = Gather(RecordContext::STATE);
  if (context != nullptr) {
    const std::lock_guard lock(mutex_);
    contexts_[subject.address] = context;
  }
  if (when_.load() < RecordContext::ALLOC) context = nullptr;
  Add(Entry(Entry::ALLOC, subject.device, reinterpret_cast<std::size_t>(subject.address), subject.bytes, subject.stream,
            {0, 0}, c10::getApproximateTime(), std::move(context), "", user_metadata));
}

void AllocationHistory::OnFree(const Subject& subject, const std::string& user_metadata) {
  Context context = Gather(RecordContext::ALL);
  Context allocated_by;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = contexts_.find(subject.address); found != contexts_.end()) {
      allocated_by = std::move(found->second);
      contexts_.erase(found);
    }
  }
  if (context == nullptr && when_.load() >= RecordContext::ALLOC) context = std::move(allocated_by);
  for (const Entry::Action action : {Entry::FREE_REQUESTED, Entry::FREE_COMPLETED}) {
    Add(Entry(action, subject.device, reinterpret_cast<std::size_t>(subject.address), subject.bytes, subject.stream,
              {0, 0}, c10::getApproximateTime(), context, "", user_metadata));
  }
}

void AllocationHistory::OnSegment(Entry::Action action, const Subject& subject) {
  Add(Entry(action, subject.device, reinterpret_cast<std::size_t>(subject.address), subject.bytes, subject.stream,
            {0, 0}, c10::getApproximateTime()));
}

std::vector<AllocationHistory::Entry> AllocationHistory::Entries(c10::DeviceIndex device) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(device);
  if (found == entries_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

AllocationHistory::Context AllocationHistory::BlockContext(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(address);
  return found == contexts_.end() ? nullptr : found->second;
}

// Outside of every lock: it takes the GIL, and whoever holds that may be waiting for us.
AllocationHistory::Context AllocationHistory::Gather(RecordContext level) const {
  const auto gather = gather_.load();
  return gather == nullptr || when_.load() < level ? nullptr : gather();
}

void AllocationHistory::Add(Entry entry) {
  const std::lock_guard lock(mutex_);
  for (const Tracker& tracker : trackers_) tracker(entry);
  if (!recording_ || std::find(skipped_.begin(), skipped_.end(), entry.action_) != skipped_.end()) return;
  std::deque<Entry>& ring = entries_[entry.device_];
  if (ring.size() == max_entries_) ring.pop_front();
  ring.push_back(std::move(entry));
}

}  // namespace stalloc
