#include "planner/packing/idle_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

// How many numbers of a multiset are at most a given one. The numbers that may occur are known from the start.
class Tally {
 public:
  explicit Tally(std::vector<Offset> values) : values_(std::move(values)) {
    std::sort(values_.begin(), values_.end());
    values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
    sums_.resize(values_.size() + 1);
  }

  void Add(Offset value, std::int64_t count) {
    for (std::size_t i = IndexAbove(value); i < sums_.size(); i += i & (~i + 1)) sums_[i] += count;
  }

  [[nodiscard]] std::int64_t AtMost(Offset value) const {
    std::int64_t count = 0;
    for (std::size_t i = IndexAbove(value); i > 0; i &= i - 1) count += sums_[i];
    return count;
  }

 private:
  [[nodiscard]] std::size_t IndexAbove(Offset value) const {
    return static_cast<std::size_t>(std::upper_bound(values_.begin(), values_.end(), value) - values_.begin());
  }

  std::vector<Offset> values_;
  std::vector<std::int64_t> sums_;
};

struct Piece {
  Tick begin;
  Tick end;
  Offset low;
  Offset high;
  bool is_idle;
  std::size_t index;
};

// Ranges of addresses that are active at the moment.
class ActiveRanges {
 public:
  ActiveRanges(const std::vector<Piece>& pieces, bool idle)
      : lows_(Ends(pieces, idle, &Piece::low)), highs_(Ends(pieces, idle, &Piece::high)) {}

  void Change(const Piece& piece, std::int64_t by) {
    lows_.Add(piece.low, by);
    highs_.Add(piece.high, by);
  }

  // REQUIRES: low < high.
  [[nodiscard]] bool Meets(Offset low, Offset high) const {
    const std::int64_t below = highs_.AtMost(low);
    const std::int64_t not_above = lows_.AtMost(high - 1);
    return not_above > below;
  }

 private:
  static std::vector<Offset> Ends(const std::vector<Piece>& pieces, bool idle, Offset Piece::*end) {
    std::vector<Offset> ends;
    for (const Piece& piece : pieces) {
      if (piece.is_idle == idle) ends.push_back(piece.*end);
    }
    return ends;
  }

  Tally lows_;
  Tally highs_;
};

std::string Describe(const IdleRange& range, std::size_t index) {
  return absl::StrCat("idle range ", index, " [", range.offset, ", ", range.offset + range.bytes, ") at positions [",
                      range.begin, ", ", range.begin + range.length, ")");
}

absl::StatusOr<std::vector<Piece>> PiecesOf(std::span<const IdleRange> idle, std::span<const UsedRange> used,
                                            Tick length) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < idle.size(); ++i) {
    const IdleRange& range = idle[i];
    const bool in_cycle = 0 <= range.begin && range.begin < length && 0 < range.length && range.length <= length;
    if (!in_cycle || range.bytes == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(range, i), " is empty or not in the cycle, whose length is ", length));
    }
    const Tick end = range.begin + range.length;
    pieces.push_back({range.begin, std::min(end, length), range.offset, range.offset + range.bytes, true, i});
    if (end > length) pieces.push_back({0, end - length, range.offset, range.offset + range.bytes, true, i});
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    pieces.push_back({used[i].begin, used[i].end, used[i].offset, used[i].offset + used[i].bytes, false, i});
  }
  return pieces;
}

// The first beginning at which a piece meets one of the other kind; pieces.size(): none.
std::size_t FirstClash(const std::vector<Piece>& pieces) {
  std::vector<std::tuple<Tick, bool, std::size_t>> events;  // ends (false) first
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    events.emplace_back(pieces[i].begin, true, i);
    events.emplace_back(pieces[i].end, false, i);
  }
  std::sort(events.begin(), events.end());
  ActiveRanges idle(pieces, true);
  ActiveRanges used(pieces, false);
  for (const auto& [tick, begins, index] : events) {
    const Piece& piece = pieces[index];
    ActiveRanges& own = piece.is_idle ? idle : used;
    const ActiveRanges& other = piece.is_idle ? used : idle;
    if (begins && other.Meets(piece.low, piece.high)) return index;
    own.Change(piece, begins ? 1 : -1);
  }
  return pieces.size();
}

bool Meet(const Piece& a, const Piece& b) {
  return a.is_idle != b.is_idle && a.begin < b.end && b.begin < a.end && a.low < b.high && b.low < a.high;
}

}  // namespace

std::vector<UsedRange> UsedInCycle(const Problem& problem, const Packing& packing, const CycleAxis& cycle) {
  std::vector<UsedRange> used;
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& block = problem.blocks[i];
    for (const Lifetime& life : {block.life, block.second_life.value_or(Lifetime{})}) {
      const Tick begin = std::max(life.begin, cycle.begin);
      const Tick end = std::min(life.end, cycle.end);
      if (begin < end) used.push_back({begin - cycle.begin, end - cycle.begin, packing.offsets[i], block.bytes});
    }
  }
  return used;
}

absl::Status CheckIdleSpace(std::span<const IdleRange> idle, std::span<const UsedRange> used, Tick length) {
  const absl::StatusOr<std::vector<Piece>> pieces = PiecesOf(idle, used, length);
  if (!pieces.ok()) return pieces.status();
  const std::size_t clash = FirstClash(*pieces);
  if (clash == pieces->size()) return absl::OkStatus();
  const Piece& first = (*pieces)[clash];
  const auto other =
      std::find_if(pieces->begin(), pieces->end(), [&](const Piece& piece) { return Meet(first, piece); });
  const Piece& range = first.is_idle ? first : *other;
  const Piece& user = first.is_idle ? *other : first;
  return absl::InvalidArgumentError(absl::StrCat(Describe(idle[range.index], range.index), " is in use: bytes [",
                                                 user.low, ", ", user.high, ") at positions [", user.begin, ", ",
                                                 user.end, ")"));
}

}  // namespace stalloc::planner
