// Spaces: the arenas of one device, in the order in which they came. The last one serves; what lives in the others
// stays where it is until the program frees it.
//
// Add is called by one thread at a time, all else by any; what was added stays as long as this does.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "allocator/runtime/planned_space.h"

namespace stalloc {

class Spaces {
 public:
  static constexpr std::size_t kMost =
      6;  // of a plan that is another run's, without a plan, and of one plan after the other

  [[nodiscard]] bool full() const noexcept { return size() == kMost; }
  // REQUIRES: not full.
  void Add(std::shared_ptr<PlannedSpace> space) noexcept {
    const std::size_t count = size();
    owners_[count] = std::move(space);
    spaces_[count] = owners_[count].get();
    count_.store(count + 1, std::memory_order_release);
  }

  // Null if there is none.
  [[nodiscard]] PlannedSpace* Serving() const noexcept {
    const std::size_t count = size();
    return count > 0 ? spaces_[count - 1] : nullptr;
  }
  // Whose addresses these are; null if nobody's here.
  [[nodiscard]] PlannedSpace* Of(const void* pointer) const noexcept {
    for (std::size_t i = size(); i > 0; --i) {
      if (spaces_[i - 1]->arena().Contains(pointer)) return spaces_[i - 1];
    }
    return nullptr;
  }
  [[nodiscard]] std::span<PlannedSpace* const> All() const noexcept { return {spaces_.data(), size()}; }

  // bytes(space) of each, added up.
  template <typename Count>
  [[nodiscard]] Bytes Sum(Count&& bytes) const noexcept {
    Bytes sum = 0;
    for (PlannedSpace* const space : All()) sum += bytes(*space);
    return sum;
  }
  [[nodiscard]] Bytes MappedBytes() const noexcept {
    return Sum([](const PlannedSpace& space) { return space.arena().mapped_bytes(); });
  }
  // What ended in all but the serving one; bytes.
  Bytes GiveBackRetired() noexcept {
    return Sum([this](PlannedSpace& space) { return &space != Serving() ? space.GiveBackEnded() : 0; });
  }
  // The same before the serving one maps, where that is much.
  Bytes GiveBackRetiredForServing() noexcept {
    return Sum([this](PlannedSpace& space) { return &space != Serving() ? space.GiveBackForAnother() : 0; });
  }
  Bytes GiveBackIdle() noexcept {
    return Sum([](PlannedSpace& space) { return space.GiveBackIdle(); });
  }

 private:
  [[nodiscard]] std::size_t size() const noexcept { return count_.load(std::memory_order_acquire); }

  std::array<std::shared_ptr<PlannedSpace>, kMost> owners_;
  std::array<PlannedSpace*, kMost> spaces_{};  // those below count_ never change
  std::atomic<std::size_t> count_{0};
};

}  // namespace stalloc
