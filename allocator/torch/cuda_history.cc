#include "allocator/torch/cuda_history.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "allocator/torch/version/records.h"

namespace stalloc {
namespace {

// For those that are recorded here; torch rejects names that nobody knows.
std::optional<AllocationHistory::Entry::Action> ActionOf(std::string_view name) {
  using Entry = AllocationHistory::Entry;
  if (name == "alloc") return Entry::ALLOC;
  if (name == "free_requested") return Entry::FREE_REQUESTED;
  if (name == "free_completed") return Entry::FREE_COMPLETED;
  if (name == "segment_alloc") return Entry::SEGMENT_ALLOC;
  if (name == "segment_free") return Entry::SEGMENT_FREE;
  return std::nullopt;
}

std::string WhatOf(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace

void AllocationHistory::Configure(const Options& options) {
  std::vector<Entry::Action> skipped;
  for (const std::string& action : options.skip_actions) {
    if (const auto recorded = ActionOf(action); recorded.has_value()) skipped.push_back(*recorded);
  }
  const std::lock_guard lock(mutex_);
  recording_ = options.enabled;
  max_entries_ = std::max<std::size_t>(1, options.max_entries);
  skipped_ = std::move(skipped);
  gather_.store(options.enabled ? options.gather : nullptr);
  when_.store(options.enabled && options.gather != nullptr ? options.when : RecordContext::NEVER);
  if (!options.enabled || options.clear) entries_.clear();
  if (!options.enabled) contexts_.clear();
  if (!options.enabled && trackers_->empty()) {
    used_elsewhere_.clear();
    pending_.clear();
  }
  active_.store(recording_ || !trackers_->empty());
}

void AllocationHistory::AddTracker(Tracker tracker) {
  const std::lock_guard lock(mutex_);
  auto trackers = std::make_shared<Trackers>(*trackers_);
  trackers->push_back(std::move(tracker));
  trackers_ = std::move(trackers);
  active_.store(true);
}

void AllocationHistory::OnAlloc(const Subject& subject, const std::string& user_metadata) {
  Context context = Gather(RecordContext::STATE);
  if (context != nullptr) {
    const std::lock_guard lock(mutex_);
    contexts_[subject.address] = context;
  }
  if (when_.load() < RecordContext::ALLOC) context = nullptr;
  CompleteIn(subject);
  const std::exception_ptr failure = Add(Entry::ALLOC, subject, std::move(context), user_metadata);
  if (failure != nullptr) std::rethrow_exception(failure);
}

void AllocationHistory::OnForeignUse(const void* address) {
  const std::lock_guard lock(mutex_);
  used_elsewhere_.insert(address);
}

void AllocationHistory::OnFree(const Subject& subject, const std::string& user_metadata) {
  Context context = Gather(RecordContext::ALL);
  Context allocated_by;
  bool is_pending = false;
  {
    const std::lock_guard lock(mutex_);
    is_pending = used_elsewhere_.erase(subject.address) > 0;
    if (const auto found = contexts_.find(subject.address); found != contexts_.end()) {
      allocated_by = std::move(found->second);
      contexts_.erase(found);
    }
  }
  if (context == nullptr && when_.load() >= RecordContext::ALLOC) context = std::move(allocated_by);
  const PendingFree free{subject, std::move(context), user_metadata};
  AddFree(Entry::FREE_REQUESTED, free);
  if (!is_pending) {
    AddFree(Entry::FREE_COMPLETED, free);
    return;
  }
  const std::lock_guard lock(mutex_);
  pending_.insert_or_assign(reinterpret_cast<std::size_t>(subject.address), free);
}

std::size_t AllocationHistory::Incomplete(c10::DeviceIndex device) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      pending_.begin(), pending_.end(), [&](const auto& entry) { return entry.second.subject.device == device; }));
}

void AllocationHistory::CompleteUnlessHeld(c10::DeviceIndex device, const std::vector<std::size_t>& held) {
  std::vector<PendingFree> completed;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = pending_.begin(); it != pending_.end();) {
      const bool stays = it->second.subject.device != device || std::binary_search(held.begin(), held.end(), it->first);
      if (!stays) completed.push_back(std::move(it->second));
      it = stays ? std::next(it) : pending_.erase(it);
    }
  }
  for (const PendingFree& free : completed) AddFree(Entry::FREE_COMPLETED, free);
}

// Frees of blocks that have bytes in common with the subject.
void AllocationHistory::CompleteIn(const Subject& subject) {
  const auto begin = reinterpret_cast<std::size_t>(subject.address);
  std::vector<PendingFree> completed;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.empty()) return;
    auto it = pending_.upper_bound(begin);
    if (it != pending_.begin() && std::prev(it)->first + std::prev(it)->second.subject.bytes > begin) --it;
    while (it != pending_.end() && it->first < begin + subject.bytes) {
      completed.push_back(std::move(it->second));
      it = pending_.erase(it);
    }
  }
  for (const PendingFree& free : completed) AddFree(Entry::FREE_COMPLETED, free);
}

void AllocationHistory::AddFree(Entry::Action action, const PendingFree& free) {
  AddAnyway(action, free.subject, free.context, free.user_metadata);
}

void AllocationHistory::OnSegment(Entry::Action action, const Subject& subject, Context context) {
  AddAnyway(action, subject, std::move(context), {});
}

void AllocationHistory::OnAnnotation(Entry::Action action, const Subject& subject, const std::string& metadata) {
  AddAnyway(action, subject, Gather(RecordContext::ALL), metadata);
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

// Outside of every lock: it takes the GIL, and its holder may be waiting for us.
AllocationHistory::Context AllocationHistory::Gather(RecordContext level) const {
  const auto gather = gather_.load();
  return gather == nullptr || when_.load() < level ? nullptr : gather();
}

std::exception_ptr AllocationHistory::Add(Entry::Action action, const Subject& subject, Context context,
                                          const std::string& user_metadata) {
  const Entry entry =
      version::MakeEntry({action, subject.device, reinterpret_cast<std::size_t>(subject.address), subject.bytes,
                          subject.stream, c10::getApproximateTime(), std::move(context), user_metadata});
  std::exception_ptr failure;
  for (const std::shared_ptr<const Trackers> trackers = Record(entry); const Tracker& tracker : *trackers) {
    try {
      tracker(entry);
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  return failure;
}

std::shared_ptr<const AllocationHistory::Trackers> AllocationHistory::Record(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (recording_ && std::find(skipped_.begin(), skipped_.end(), entry.action_) == skipped_.end()) {
    std::deque<Entry>& ring = entries_[entry.device_];
    if (ring.size() == max_entries_) ring.pop_front();
    ring.push_back(entry);
  }
  return trackers_;
}

void AllocationHistory::AddAnyway(Entry::Action action, const Subject& subject, Context context,
                                  const std::string& user_metadata) {
  const std::exception_ptr failure = Add(action, subject, std::move(context), user_metadata);
  if (failure != nullptr && failures_.Pass()) {
    Log(LogSeverity::kWarning, "device %d: a tracker of the allocator's events failed: %s", int{subject.device},
        WhatOf(failure).c_str());
  }
}

}  // namespace stalloc
