// ScriptIndex: one script, prepared for the matcher. Built once when a plan is loaded; read-only and shared afterwards.
//
// Sizes are counted in granules of kBlockAlignment bytes; positions are indices into Script::entries.
//
// An entry that varies matches other sizes *weakly*: those near what was seen are worth the less, the wider its range;
// any other is better than none. A size that varying entries could well have, or that optional entries alone have, is
// no *anchor*: its entries also match weakly. Anchors match exactly or not at all (details.md, Matching).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "allocator/base/open_table.h"
#include "allocator/engine/bytes/plan_reading.h"
#include "allocator/engine/follow/tuning.h"
#include "proto/model/plan.h"

namespace stalloc {

class ScriptIndex {
 public:
  static constexpr std::int32_t kPadding = 160;    // positions in [-kPadding, size() + kPadding) may be read
  static constexpr Granules kNever = 0xffffffffu;  // equals no request

  explicit ScriptIndex(const Script& script);

  [[nodiscard]] std::int32_t size() const noexcept { return size_; }

  // Size of the entry; equals no request for entries that vary and outside the script.
  [[nodiscard]] Granules SizeAt(std::int32_t position) const noexcept { return At(sizes_, position); }
  // The request is not of the entry's size, or the entry has none, but it could be this entry: as far as kFarMargin
  // times what the alignment calls near. Anything further is looked at together with what comes next.
  [[nodiscard]] bool WeaklyMatches(std::int32_t position, Granules granules) const noexcept {
    const Granules low = At(weak_low_, position);
    return granules >= low / tuning::kFarMargin &&
           granules / tuning::kFarMargin <= std::uint64_t{low} + At(weak_span_, position) && low != kNever;
  }

  // Columns for the alignment's inner loop: element 0 is position `first`.
  struct Columns {
    const Granules* size;
    const Granules* weak_low;  // kNever: matches exactly or not at all
    const Granules* weak_span;
    const std::int16_t* blur;  // what a weak match is worth less than an exact one; -1: there is none
  };
  [[nodiscard]] Columns ColumnsFrom(std::int32_t first) const noexcept {
    return {&At(sizes_, first), &At(weak_low_, first), &At(weak_span_, first), &At(blur_, first)};
  }
  // What it costs to leave out all entries before `first`, before the one after it, and so on: differences matter.
  [[nodiscard]] const std::int32_t* SkipCostsFrom(std::int32_t first) const noexcept { return &At(skip_costs_, first); }

  // For a size: whether some entry that does not vary has it; whether it is an anchor; points of an exact match with
  // it, the rarer, the more.
  struct SizeInfo {
    std::int32_t worth = 0;
    bool anchor = false;
    bool known = false;
  };
  [[nodiscard]] SizeInfo InfoOf(Granules granules) const noexcept {
    const SizeInfo* const info = known_.Find(granules);
    return info != nullptr ? *info : SizeInfo{.worth = unknown_worth_};
  }
  [[nodiscard]] bool KnownSize(Granules granules) const noexcept { return InfoOf(granules).known; }
  [[nodiscard]] bool IsAnchorSize(Granules granules) const noexcept { return InfoOf(granules).anchor; }

  // The anchors in script order, and the places where tuning::kAnchorsOfPlace of them in a row occur.
  [[nodiscard]] Granules AnchorSize(std::uint32_t anchor) const noexcept { return SizeAt(anchors_[anchor]); }
  [[nodiscard]] std::int32_t AnchorPosition(std::uint32_t anchor) const noexcept { return anchors_[anchor]; }
  struct Gram {
    std::uint64_t hash;
    std::uint32_t last_anchor;
  };
  // Places with this hash, ascending: equal sizes but for hash collisions, which the caller rules out.
  [[nodiscard]] std::span<const Gram> FindGram(std::uint64_t hash) const noexcept {
    return std::ranges::equal_range(grams_, hash, {}, &Gram::hash);
  }
  // Hash of tuning::kAnchorsOfPlace sizes; `next()` yields them, oldest first.
  template <typename Next>
  [[nodiscard]] static std::uint64_t HashGram(Next&& next) noexcept {
    std::uint64_t hash = 0x9e3779b97f4a7c15ull;
    for (std::uint32_t i = 0; i < tuning::kAnchorsOfPlace; ++i) {
      hash = (hash ^ next()) * 0xff51afd7ed558ccdull;
      hash ^= hash >> 32;
    }
    return hash;
  }

 private:
  template <typename T>
  [[nodiscard]] static const T& At(const std::vector<T>& column, std::int32_t position) noexcept {
    return column[static_cast<std::size_t>(position + kPadding)];
  }
  void FillSizes(const Script& script);
  void FillColumns(const Script& script);
  void FillVarying(const Entry& entry, std::size_t at);
  void FillFixed(const Entry& entry, std::size_t at);
  // Sizes from a quarter of `low` to four times `high`.
  void MatchWeakly(std::size_t at, Granules low, Granules high);
  void FillGrams();

  std::int32_t size_;
  std::int32_t unknown_worth_ = 0;
  OpenTable<SizeInfo> known_{0};    // sizes of entries that do not vary
  std::vector<Granules> sizes_;     // padded, as the next four
  std::vector<Granules> weak_low_;  // sizes in [low, low + span] match weakly
  std::vector<Granules> weak_span_;
  std::vector<std::int16_t> blur_;
  std::vector<std::int32_t> skip_costs_;
  std::vector<std::int32_t> anchors_;
  std::vector<Gram> grams_;  // by hash, then by place
};

}  // namespace stalloc
