// FakeUpstream: malloc as an Upstream that counts, can be capped and can be told to fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/runtime/device_runtime.h"

namespace stalloc {

class FakeUpstream final : public Upstream {
 public:
  ~FakeUpstream() override {
    for (const auto& [pointer, bytes] : live_) std::free(pointer);
  }

  void* Allocate(Bytes requested, StreamHandle /*stream*/) override {
    if (requested == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    if (failures_ > 0 && failures_-- > 0) {
      if (std::exchange(other_failure_, false)) throw std::runtime_error("another failure");
      throw std::bad_alloc();
    }
    const Bytes bytes = BlockBytes(requested);
    void* const pointer = std::aligned_alloc(kBlockAlignment, bytes);
    live_.emplace(pointer, bytes);
    held_.current += bytes;
    held_.peak = std::max(held_.peak, held_.current);
    held_.iteration_peak = std::max(held_.iteration_peak, held_.current);
    ++allocations_;
    return pointer;
  }
  void Free(void* pointer) noexcept override {
    const std::lock_guard lock(mutex_);
    ++frees_;
    const auto found = live_.find(pointer);
    if (found == live_.end()) return;
    held_.current -= found->second;
    live_.erase(found);
    std::free(pointer);
  }
  void RecordStream(void* pointer, StreamHandle stream) override {
    const std::lock_guard lock(mutex_);
    recorded_.emplace_back(pointer, stream);
  }
  [[nodiscard]] bool IsOutOfMemory(const std::exception_ptr& thrown) const override {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      return true;
    } catch (...) {
      return false;
    }
  }
  void ReleaseCached() noexcept override {
    const std::lock_guard lock(mutex_);
    cached_ = std::min(cached_, pinned_);
    ++releases_;
  }
  [[nodiscard]] Held HeldBytes() const override {
    ++times_asked_;
    const std::lock_guard lock(mutex_);
    return {held_.current + cached_, held_.peak + cached_, held_.iteration_peak + cached_};
  }
  void BeginIteration() noexcept override {
    const std::lock_guard lock(mutex_);
    held_.iteration_peak = held_.current;
  }

  [[nodiscard]] bool Caches() const noexcept override { return caches_; }
  [[nodiscard]] Bytes HeldApart(Bytes live) const override { return live + apart_; }

  void SetCaches(bool caches) { caches_ = caches; }
  void HoldApart(Bytes bytes) { apart_ = bytes; }  // of what it caches, in pools of graphs
  void Cache(Bytes bytes) { cached_ = bytes; }     // held for nothing, until it is told to give it back
  void Pin(Bytes bytes) { pinned_ = bytes; }       // of that, what blocks in the same pages keep
  void FailNext(int times) { failures_ = times; }
  void NextFailureIsOther() { other_failure_ = true; }  // no lack of memory
  void ResetPeak() { held_.peak = held_.current; }
  [[nodiscard]] int times_asked() const { return times_asked_; }  // what it holds
  [[nodiscard]] int allocations() const { return allocations_; }
  [[nodiscard]] int frees() const { return frees_; }
  [[nodiscard]] int releases() const { return releases_; }  // of what is cached
  [[nodiscard]] std::size_t live() const { return live_.size(); }
  [[nodiscard]] const std::vector<std::pair<void*, StreamHandle>>& recorded() const { return recorded_; }

 private:
  mutable std::mutex mutex_;
  mutable std::atomic<int> times_asked_ = 0;
  std::unordered_map<void*, Bytes> live_;
  std::vector<std::pair<void*, StreamHandle>> recorded_;
  Held held_;
  bool caches_ = true;
  Bytes apart_ = 0;
  Bytes cached_ = 0;
  Bytes pinned_ = 0;
  std::atomic<int> failures_ = 0;
  bool other_failure_ = false;
  int allocations_ = 0;
  int frees_ = 0;
  int releases_ = 0;
};

}  // namespace stalloc
