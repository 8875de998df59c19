// DeferredRanges: a RangeSet of what comes and goes all the time and is looked at now and then.
//
// What comes or goes is noted, a store each; the set is changed when it is requested. Where more has changed than is
// remembered it is made anew. Not thread-safe; noexcept; memory from mmap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"
#include "allocator/base/range_set.h"

namespace stalloc {

class DeferredRanges {
 public:
  // There are at most so many ranges, those that touch being one; what is too many is missing.
  explicit DeferredRanges(std::size_t most) : ranges_(most), changes_(kMostChanges) { changes_.Populate(); }

  // REQUIRES: lo < hi, and nothing of it is there (Add), or all of it (Remove).
  void Add(std::uint32_t lo, std::uint32_t hi) noexcept {
    Note({lo, hi});
    ++size_;
  }
  void Remove(std::uint32_t lo, std::uint32_t hi) noexcept {
    Note({hi, lo});
    --size_;
  }
  // Calls of Add whose ranges were not removed.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // As of now. for_each(visit) is to call visit(lo, hi) for all that there are now, descending. Valid until the next
  // change.
  template <typename ForEach>
  [[nodiscard]] const RangeSet& Now(ForEach&& for_each) noexcept {
    if (count_ > kMostChanges) {
      ranges_.Assign(for_each);
    } else {
      for (std::size_t i = 0; i < count_; ++i) Make(changes_[i]);
    }
    count_ = 0;
    return ranges_;
  }

 private:
  // As many as cost about as much as a set made anew of some thousand blocks.
  static constexpr std::size_t kMostChanges = 4096;

  void Note(IndexRange change) noexcept {
    if (count_ < kMostChanges) changes_[count_] = change;
    ++count_;
  }
  void Make(const IndexRange& change) noexcept {
    if (change.lo < change.hi) {
      ranges_.Add(change.lo, change.hi);
    } else {
      ranges_.Remove(change.hi, change.lo);
    }
  }

  RangeSet ranges_;
  MappedArray<IndexRange> changes_;  // the latest; those that went have their ends the other way round
  std::size_t count_ = 0;            // of changes since the last look
  std::size_t size_ = 0;
};

}  // namespace stalloc
