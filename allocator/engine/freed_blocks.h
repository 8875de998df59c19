// FreedBlocks: bytes that the program has freed, and the streams that may still use them (README, Streams).
//
// Freed blocks stay in the occupancy, but are no obstacle to a request whose stream can be ordered behind theirs. A
// block that only the stream of its place ever uses leaves nothing: see LiveRecord::kPrivate. One whose streams could
// not all be noted (no fence, too many) is retained for ever: memory lost, never data.
//
// Thread-safety: the engine's lock guards everything; as in StreamClocks, methods with a Lock& release it meanwhile.
// noexcept; memory from mmap.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "allocator/base/mapped_array.h"
#include "allocator/engine/occupancy.h"
#include "allocator/engine/stream_clocks.h"

namespace stalloc {

// For each block that other streams use, too, the set of those streams: its index in a pool of fixed size; 0 is the
// empty set.
class ForeignUses {
 public:
  using Set = std::uint16_t;
  static constexpr std::size_t kMostSets = 0xffff;

  explicit ForeignUses(std::size_t most) : sets_(most + 1) {}

  // False if the pool is full; then nothing changed.
  [[nodiscard]] bool Add(Set& set, StreamIndex stream) noexcept {
    if (set == 0 && !Make(set)) return false;
    sets_[set].words[stream / 64] |= std::uint64_t{1} << (stream % 64);
    return true;
  }
  // Another set of the same streams. False if the pool is full; then it is empty.
  [[nodiscard]] bool Copy(Set set, Set& copy) noexcept {
    copy = 0;
    if (set == 0) return true;
    if (!Make(copy)) return false;
    sets_[copy].words = sets_[set].words;
    return true;
  }
  // Removes the streams for which remove(stream) holds.
  template <typename Remove>
  void RemoveIf(Set& set, Remove&& remove) noexcept {
    All(set, [&](StreamIndex stream) {
      if (remove(stream)) sets_[set].words[stream / 64] &= ~(std::uint64_t{1} << (stream % 64));
      return true;
    });
    if (sets_[set].words == Words{}) Clear(set);
  }
  void Clear(Set& set) noexcept {
    if (set == 0) return;
    sets_[set] = {{}, free_};
    free_ = std::exchange(set, Set{0});
  }

  // True if visit(stream) is for each of them; stops at the first for which it is not.
  template <typename Visit>
  bool All(Set set, Visit&& visit) const {
    for (std::size_t word = 0; set != 0 && word < kWords; ++word) {
      for (std::uint64_t left = sets_[set].words[word]; left != 0; left &= left - 1) {
        if (!visit(static_cast<StreamIndex>(word * 64 + static_cast<std::size_t>(std::countr_zero(left)))))
          return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kWords = StreamClocks::kMaxStreams / 64;
  using Words = std::array<std::uint64_t, kWords>;
  struct Streams {
    Words words{};
    Set next = 0;  // of the free ones
  };
  bool Make(Set& set) noexcept {
    if (free_ == 0 && used_ + 1 >= sets_.size()) return false;
    set = free_ != 0 ? std::exchange(free_, sets_[free_].next) : static_cast<Set>(++used_);
    return true;
  }

  MappedArray<Streams> sets_;  // 0 is nobody's
  std::size_t used_ = 0;       // that were ever given out
  Set free_ = 0;
};

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
  // Frees the block, and records the events that are expected to be waited for: behind streams that were noted, and
  // behind its own and the one it was freed on if the plan hands its bytes to another stream.
  void Free(LiveRecord& block, Lock& lock) noexcept;
  // Frees the block without a trace: nothing will be served any more.
  void Forget(LiveRecord& block) noexcept;

  // No block in [lo, hi) is live or retained.
  [[nodiscard]] bool OnlyFreedIn(std::uint32_t lo, std::uint32_t hi) const noexcept;
  // A request of `waiter` can have the block's bytes; `now`: without being made to wait for a stream.
  [[nodiscard]] bool CanBeHad(const LiveRecord& block, StreamIndex waiter, bool now) const noexcept;
  // Adds to `needs` what a request of `waiter` for [lo, hi) must be ordered behind. False if a byte cannot be had.
  [[nodiscard]] bool Gather(std::uint32_t lo, std::uint32_t hi, StreamIndex waiter, StreamNeeds& needs) const noexcept;
  // [lo, hi) is `taker`'s now. REQUIRES: Gather.
  void Take(std::uint32_t lo, std::uint32_t hi, StreamIndex taker) noexcept;
  // The block was never used, since its stream could not be ordered behind `needs`: free again, and as before.
  void PutBack(std::uint32_t granule, const StreamNeeds& needs) noexcept;

  // At marks: lets go of what is known to be done.
  void Sweep(Lock& lock) noexcept;

  // The latest that a free was given.
  [[nodiscard]] std::uint64_t last_stamp() const noexcept { return clocks_.last_stamp(); }
  // Blocks, or what is left of them, that wait for streams that were noted.
  [[nodiscard]] std::size_t pending() const noexcept { return pending_; }
  [[nodiscard]] Bytes pending_bytes() const noexcept { return pending_bytes_; }
  [[nodiscard]] std::uint64_t retained() const noexcept { return retained_; }

 private:
  // True if visit(stream, stamp) is for each whose work up to there `waiter` must run behind to have the block's bytes.
  template <typename Visit>
  [[nodiscard]] bool AllStreams(const LiveRecord& block, StreamIndex waiter, Visit&& visit) const noexcept;
  template <typename Visit>
  [[nodiscard]] bool AllFreedIn(std::uint32_t lo, std::uint32_t hi, Visit&& visit) const noexcept;
  void Retain(LiveRecord& block) noexcept;
  void Enlist(const LiveRecord& block) noexcept;
  void Delist(const LiveRecord& block) noexcept;
  void Remove(std::uint32_t granule) noexcept;
  void CutHead(const LiveRecord& block, std::uint32_t from) noexcept;
  void RecordWhatIsMissing(Lock& lock) noexcept;
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
