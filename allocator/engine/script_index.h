// ScriptIndex: one script, prepared for the matcher. Built once when a plan is loaded; read-only and shared afterwards.
//
// Sizes are counted in granules of kBlockAlignment bytes; positions are indices into Script::entries.
//
// Note [Anchors and weak matches]
// An entry that varies (EntryClass::kDynamic) matches other sizes *weakly*: those within a factor of four of what was
// seen are worth the less, the wider its range; any other is better than none. The classes come from a few traced
// iterations, so an entry may be called static only because its size was the same twice by chance (a routed expert's
// token count, say), and one that was not always there (EntryClass::kOptional) has no more to show for its size.
// Therefore a size that some varying entry could well have, too, or that optional entries alone have, is no *anchor*:
// an entry of that size also matches weakly. Anchors match exactly or not at all, and rows of them name places in the
// script. Where nothing varies, every size is an anchor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/model/plan.h"
#include "proto/model/units.h"

namespace stalloc {

// A request's size as the matcher sees it; 0 stands for "too large to be in any plan".
using Granules = std::uint32_t;
[[nodiscard]] constexpr Granules ToGranules(Bytes bytes) noexcept {
  const Bytes granules = BlockBytes(bytes) / kBlockAlignment;
  return granules < 0xffffffffu ? static_cast<Granules>(granules) : 0;
}

class ScriptIndex {
 public:
  static constexpr std::uint32_t kGram = 8;        // anchors in a row that name a place in the script
  static constexpr std::int32_t kPadding = 160;    // positions in [-kPadding, size() + kPadding) may be read
  static constexpr Granules kNever = 0xffffffffu;  // equals no request

  explicit ScriptIndex(const Script& script);

  [[nodiscard]] std::int32_t size() const noexcept { return size_; }

  // Size of the entry; equals no request for entries that vary and outside the script.
  [[nodiscard]] Granules SizeAt(std::int32_t position) const noexcept { return At(sizes_, position); }
  // The request is not of the entry's size, or the entry has none, but it could be this entry: as far as kFar times
  // what the alignment calls near. Anything further is looked at together with what comes next.
  [[nodiscard]] bool WeaklyMatches(std::int32_t position, Granules granules) const noexcept {
    constexpr Granules kFar = 16;
    const Granules low = At(weak_low_, position);
    return granules >= low / kFar && granules / kFar <= std::uint64_t{low} + At(weak_span_, position) && low != kNever;
  }

  // Columns for the alignment's inner loop: element 0 is position `first`.
  struct Columns {
    const Granules* size;
    const Granules* weak_low;  // kNever: matches exactly or not at all
    const Granules* weak_span;
    const std::int32_t* blur;  // what a weak match is worth less than an exact one
    const std::int32_t* skip_cost;
  };
  [[nodiscard]] Columns ColumnsFrom(std::int32_t first) const noexcept {
    return {&At(sizes_, first), &At(weak_low_, first), &At(weak_span_, first), &At(blur_, first),
            &At(skip_cost_, first)};
  }

  // Some entry that does not vary has this size.
  [[nodiscard]] bool KnownSize(Granules granules) const noexcept { return FindSize(granules) != nullptr; }
  [[nodiscard]] bool IsAnchorSize(Granules granules) const noexcept {
    const SizeInfo* info = FindSize(granules);
    return info != nullptr && info->anchor;
  }
  // Points of an exact match with this size: the rarer the size, the more.
  [[nodiscard]] std::int32_t Worth(Granules granules) const noexcept {
    const SizeInfo* info = FindSize(granules);
    return info != nullptr ? info->worth : unknown_worth_;
  }

  // The anchors in script order, and the places where kGram of them in a row occur.
  [[nodiscard]] Granules AnchorSize(std::uint32_t anchor) const noexcept { return SizeAt(anchors_[anchor]); }
  [[nodiscard]] std::int32_t AnchorPosition(std::uint32_t anchor) const noexcept { return anchors_[anchor]; }
  struct Gram {
    std::uint64_t hash;
    std::uint32_t last_anchor;
  };
  struct GramRange {
    const Gram* first;  // ascending by last_anchor
    const Gram* last;
    [[nodiscard]] const Gram* begin() const noexcept { return first; }
    [[nodiscard]] const Gram* end() const noexcept { return last; }
  };
  // Places with this hash: equal sizes but for hash collisions, which the caller rules out.
  [[nodiscard]] GramRange FindGram(std::uint64_t hash) const noexcept;
  // Hash of kGram sizes; `next()` yields them, oldest first.
  template <typename Next>
  [[nodiscard]] static std::uint64_t HashGram(Next&& next) noexcept {
    std::uint64_t hash = 0x9e3779b97f4a7c15ull;
    for (std::uint32_t i = 0; i < kGram; ++i) {
      hash = (hash ^ next()) * 0xff51afd7ed558ccdull;
      hash ^= hash >> 32;
    }
    return hash;
  }

 private:
  struct SizeInfo {
    Granules granules = 0;  // 0: empty place
    std::int32_t worth = 0;
    bool anchor = false;
  };

  template <typename T>
  [[nodiscard]] static const T& At(const std::vector<T>& column, std::int32_t position) noexcept {
    return column[static_cast<std::size_t>(position + kPadding)];
  }
  [[nodiscard]] std::size_t HomeOf(Granules granules) const noexcept {
    return granules * 0x9e3779b1u & (known_.size() - 1);
  }
  [[nodiscard]] const SizeInfo* FindSize(Granules granules) const noexcept;
  void FillSizes(const Script& script);
  void FillColumns(const Script& script);
  void FillVarying(const Entry& entry, std::size_t at);
  void FillFixed(const Entry& entry, std::size_t at);
  // Sizes from a quarter of `low` to four times `high`.
  void MatchWeakly(std::size_t at, Granules low, Granules high);
  void FillGrams();

  std::int32_t size_;
  std::int32_t unknown_worth_ = 0;
  std::vector<SizeInfo> known_;     // open addressing, at most half full
  std::vector<Granules> sizes_;     // padded, as the next four
  std::vector<Granules> weak_low_;  // sizes in [low, low + span] match weakly
  std::vector<Granules> weak_span_;
  std::vector<std::int32_t> blur_;
  std::vector<std::int32_t> skip_cost_;
  std::vector<std::int32_t> anchors_;
  std::vector<Gram> grams_;  // by hash, then by place
};

}  // namespace stalloc
