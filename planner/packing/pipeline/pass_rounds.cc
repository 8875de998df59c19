#include "planner/packing/pipeline/pass_rounds.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <utility>

namespace stalloc::planner {
namespace {

constexpr std::uint32_t kFewestRounds = 8;
// Tensors of two pieces: all ways to divide them are tried.
constexpr std::size_t kMostFreed = 12;
constexpr Bytes kMostSpareUnits = 8;

std::vector<Bytes> LongLoad(const Instance& instance, std::span<const BlockIndex> longs) {
  std::vector<Bytes> load(instance.positions() + 1, 0);
  for (const BlockIndex block : longs) {
    load[instance[block].span.begin] += instance[block].bytes;
    load[instance[block].span.end] -= instance[block].bytes;
  }
  std::partial_sum(load.begin(), load.end(), load.begin());
  load.pop_back();
  return load;
}

struct Iteration {
  std::vector<std::uint32_t> peaks = {};  // positions
  std::uint32_t end = 0;
};

// Between two peaks the load falls by more than `fall`; where it falls below half of the greatest, an iteration ends.
std::vector<Iteration> IterationsOf(const std::vector<Bytes>& load, Bytes fall) {
  const Bytes greatest = *std::max_element(load.begin(), load.end());
  std::vector<Iteration> iterations(1);
  std::uint32_t high = 0;  // where it was highest since the last valley
  std::uint32_t low = 0;   // where it was lowest since the last peak
  bool rises = true;
  for (std::uint32_t position = 0; position < load.size(); ++position) {
    if (rises) {
      if (load[position] > load[high]) high = position;
      if (load[position] + fall >= load[high]) continue;
      iterations.back().peaks.push_back(high);
      low = position;
      rises = false;
    } else {
      if (load[position] < load[low]) low = position;
      if (load[position] <= load[low] + fall) continue;
      if (load[low] < greatest / 2) {
        iterations.back().end = low;
        iterations.emplace_back();
      }
      high = position;
      rises = true;
    }
  }
  iterations.back().end = static_cast<std::uint32_t>(load.size());
  std::erase_if(iterations, [](const Iteration& iteration) { return iteration.peaks.empty(); });
  return iterations;
}

// What one round's peak is made of.
struct Summit {
  std::uint32_t position = 0;
  std::vector<BlockIndex> temporaries = {};
};

class IterationReader {
 public:
  IterationReader(const Instance& instance, Iteration iteration)
      : instance_(instance), peaks_(std::move(iteration.peaks)), end_(iteration.end) {}

  // Nothing where the block is alive at none of the peaks.
  void AddLong(BlockIndex block) {
    const Span& span = instance_[block].span;
    const std::pair key(PeaksBefore(span.begin), PeaksBefore(span.end));
    if (key.first != key.second) groups_[key].push_back(block);
  }

  void AddTemporary(BlockIndex block) { temporaries_[instance_[block].bytes].push_back(instance_[block].span); }

  // A round's summit lies between its peak of long-lived blocks and the next one.
  void FindSummits(std::span<const Bytes> load) {
    for (std::size_t round = 0; round < peaks_.size(); ++round) {
      const std::uint32_t last = round + 1 < peaks_.size() ? peaks_[round + 1] : end_;
      const auto greatest = std::max_element(load.begin() + peaks_[round], load.begin() + last);
      summits_.push_back({.position = static_cast<std::uint32_t>(greatest - load.begin())});
    }
  }

  void AddShort(BlockIndex block) {
    const Span& span = instance_[block].span;
    auto summit =
        std::lower_bound(summits_.begin(), summits_.end(), span.begin,
                         [](const Summit& entry, std::uint32_t position) { return entry.position < position; });
    for (; summit != summits_.end() && summit->position < span.end; ++summit) summit->temporaries.push_back(block);
  }

  [[nodiscard]] std::optional<PassRounds> Read() {
    if (peaks_.size() < kFewestRounds || !MakePasses()) return std::nullopt;
    EvenOut();
    if ((!FindCritical() && !FindTwoPieces()) || !Measure()) return std::nullopt;
    return std::move(rounds_);
  }

 private:
  [[nodiscard]] std::uint32_t PeaksBefore(std::uint32_t position) const {
    return static_cast<std::uint32_t>(std::lower_bound(peaks_.begin(), peaks_.end(), position) - peaks_.begin());
  }

  [[nodiscard]] Bytes BytesOf(std::span<const BlockIndex> blocks) const {
    Bytes bytes = 0;
    for (const BlockIndex block : blocks) bytes += instance_[block].bytes;
    return bytes;
  }

  // One pass begins and one ends in each round; what is left at the end is told apart by its begin.
  bool MakePasses() {
    rounds_.rounds = static_cast<std::uint32_t>(peaks_.size());
    Bytes largest = 0;
    for (const auto& [key, blocks] : groups_) largest = std::max(largest, BytesOf(blocks));
    for (auto& [key, blocks] : groups_) {
      // What is far smaller is no pass: buffers between stages that are held for a while.
      if (BytesOf(blocks) < largest / 8) continue;
      Pass pass{.body = std::move(blocks), .begin = ~std::uint32_t{0}};
      for (const BlockIndex block : pass.body) {
        pass.begin = std::min(pass.begin, instance_[block].span.begin);
        pass.end = std::max(pass.end, instance_[block].span.end);
      }
      if (key.first == 0) ++rounds_.in_flight;
      rounds_.passes.push_back(std::move(pass));
    }
    std::vector<Pass>& passes = rounds_.passes;
    if (rounds_.in_flight < 2 || passes.size() != rounds_.rounds + rounds_.in_flight - 1) return false;
    std::sort(passes.begin(), passes.end(), [](const Pass& a, const Pass& b) { return a.begin < b.begin; });
    rounds_.freed.resize(passes.size());
    std::iota(rounds_.freed.begin(), rounds_.freed.end(), 0u);
    std::sort(rounds_.freed.begin(), rounds_.freed.end(),
              [&](std::uint32_t a, std::uint32_t b) { return passes[a].end < passes[b].end; });
    for (std::uint32_t i = 0; i < passes.size(); ++i) {
      const std::uint32_t round = i < rounds_.in_flight ? 0 : i - rounds_.in_flight + 1;
      if (PeaksBefore(passes[i].begin) != round) return false;
      if (i < rounds_.rounds && PeaksBefore(passes[rounds_.freed[i]].end) != i + 1) return false;
    }
    return true;
  }

  // Leaves in each pass what all have; of equal sizes those that are freed last go.
  void EvenOut() {
    std::map<Bytes, std::size_t> common;
    for (const BlockIndex block : rounds_.passes.front().body) ++common[instance_[block].bytes];
    for (const Pass& pass : rounds_.passes) {
      std::map<Bytes, std::size_t> here;
      for (const BlockIndex block : pass.body) ++here[instance_[block].bytes];
      for (auto& [bytes, count] : common) count = std::min(count, here[bytes]);
    }
    for (Pass& pass : rounds_.passes) {
      std::stable_sort(pass.body.begin(), pass.body.end(), [&](BlockIndex a, BlockIndex b) {
        const Span& x = instance_[a].span;
        const Span& y = instance_[b].span;
        return x.end != y.end ? x.end < y.end : x.begin > y.begin;
      });
      std::map<Bytes, std::size_t> left = common;
      std::erase_if(pass.body, [&](BlockIndex block) {
        std::size_t& count = left[instance_[block].bytes];
        return count == 0 || count-- == 0;
      });
    }
  }

  // The same sizes in all rounds, or it is nothing of the kind.
  bool FindCritical() {
    std::vector<Bytes> critical;
    for (std::uint32_t round = 0; round < rounds_.rounds; ++round) {
      Pass& pass = rounds_.passes[rounds_.freed[round]];
      const Summit& summit = summits_[round];
      std::vector<Bytes> freed;
      std::uint32_t since = ~std::uint32_t{0};
      for (const BlockIndex block : pass.body) {
        if (instance_[block].span.end > summit.position) continue;
        freed.push_back(instance_[block].bytes);
        since = std::min(since, instance_[block].span.end);
      }
      const Bytes needed = TakeMatches(summit, since, freed);
      const Bytes bytes = std::accumulate(freed.begin(), freed.end(), Bytes{0});
      if (bytes == 0 || bytes >= needed) return false;
      std::sort(freed.begin(), freed.end());
      if (round == 0) {
        critical = freed;
        rounds_.critical_bytes = bytes;
        rounds_.room_bytes = needed - bytes;
      }
      if (freed != critical || rounds_.room_bytes != needed - bytes) return false;
    }
    return TakeFirstFreed(critical, &Pass::critical);
  }

  // Those of the last passes, after the last peak, too, so that all passes look alike: what is freed first.
  bool TakeFirstFreed(std::span<const Bytes> sizes, std::vector<BlockIndex> Pass::*piece) {
    for (Pass& pass : rounds_.passes) {
      for (const Bytes bytes : sizes) {
        const auto first = std::find_if(pass.body.begin(), pass.body.end(),
                                        [&](BlockIndex block) { return instance_[block].bytes == bytes; });
        if (first == pass.body.end()) return false;
        (pass.*piece).push_back(*first);
        pass.body.erase(first);
      }
    }
    return true;
  }

  // Two temporaries of one size at once. Judged by the second round, which has a pass that comes before it and one that
  // goes; the others are alike, or do not fill their places.
  bool FindTwoPieces() {
    const Pass& goes = rounds_.passes[rounds_.freed[1]];
    const Summit& summit = summits_[1];
    std::vector<BlockIndex> freed;
    std::vector<Bytes> unmatched;
    for (const BlockIndex block : goes.body) {
      if (instance_[block].span.end > summit.position) continue;
      freed.push_back(block);
      unmatched.push_back(instance_[block].bytes);
    }
    if (freed.empty()) return false;
    const std::uint32_t since = instance_[freed.front()].span.end;
    const Bytes temporary = TakeMatches(summit, since, unmatched);
    const Bytes bytes = std::accumulate(unmatched.begin(), unmatched.end(), Bytes{0});
    if (bytes < temporary || bytes >= 2 * temporary || unmatched.size() > kMostFreed) return false;
    const auto& spans = temporaries_[temporary];
    const auto first = std::find_if(spans.begin(), spans.end(), [&](const Span& span) { return span.begin >= since; });
    const Pass& comes = rounds_.passes[rounds_.in_flight];
    const auto last =
        std::find_if(spans.rbegin(), spans.rend(), [&](const Span& span) { return span.begin < LastBegin(comes); });
    if (first == spans.end() || last == spans.rend()) return false;
    // Of each size as many as are not matched: the first that are freed.
    std::erase_if(freed, [&](BlockIndex block) {
      const auto size = std::find(unmatched.begin(), unmatched.end(), instance_[block].bytes);
      if (size == unmatched.end()) return true;
      unmatched.erase(size);
      return false;
    });
    std::vector<PieceTensor> tensors;
    for (const BlockIndex block : freed) {
      const Item& item = instance_[block];
      tensors.push_back({item.bytes, item.span.end <= first->begin, BeginsLate(comes, goes, block, last->end)});
    }
    return Divide(tensors, temporary, 2 * temporary - bytes);
  }

  // What one of the freed tensors can be used for.
  struct PieceTensor {
    Bytes bytes = 0;
    bool early = false;  // freed before the first temporary comes
    bool late = false;   // not there yet while the last temporary of the pass's own begin is
  };

  [[nodiscard]] std::uint32_t LastBegin(const Pass& pass) const {
    std::uint32_t last = 0;
    for (const BlockIndex block : pass.body) last = std::max(last, instance_[block].span.begin);
    return last;
  }

  // Whether the tensor that is in `comes` what `block` is in `goes` begins at `position` or later. Bodies are alike.
  [[nodiscard]] bool BeginsLate(const Pass& comes, const Pass& goes, BlockIndex block, std::uint32_t position) const {
    const auto rank = std::count_if(goes.body.begin(), std::find(goes.body.begin(), goes.body.end(), block),
                                    [&](BlockIndex other) { return instance_[other].bytes == instance_[block].bytes; });
    auto left = rank;
    for (const BlockIndex other : comes.body) {
      if (instance_[other].bytes == instance_[block].bytes && left-- == 0) {
        return instance_[other].span.begin >= position;
      }
    }
    return false;
  }

  // Which of them are critical and which late, with the least room that allows it; odd numbers of units are left out,
  // for they make trails hard to find.
  bool Divide(const std::vector<PieceTensor>& tensors, Bytes temporary, Bytes least_room) {
    Bytes unit = 0;
    for (const BlockIndex block : rounds_.passes.front().body) unit = std::gcd(unit, instance_[block].bytes);
    for (Bytes room = RoundUp(least_room, 2 * unit); room < least_room + kMostSpareUnits * unit; room += 2 * unit) {
      for (std::uint32_t chosen = 1; chosen < (1u << tensors.size()); ++chosen) {
        Bytes critical = 0;
        Bytes rest = 0;
        Bytes late = 0;
        bool early = true;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          const bool is_critical = ((chosen >> i) & 1) != 0;
          (is_critical ? critical : rest) += tensors[i].bytes;
          if (!is_critical && tensors[i].late) late += tensors[i].bytes;
          early = early && (!is_critical || tensors[i].early);
        }
        if (!early || critical + room < temporary || late + room < temporary || rest < temporary) continue;
        rounds_.critical_bytes = critical;
        rounds_.late_bytes = rest;
        rounds_.room_bytes = room;
        return TakePieces(tensors, chosen);
      }
    }
    return false;
  }

  bool TakePieces(const std::vector<PieceTensor>& tensors, std::uint32_t chosen) {
    // In the order in which they are freed, which is that in which they came, reversed: what comes last lies beside the
    // room, and what is freed last at the other end, where no temporary then reaches into what adjoins.
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const bool is_critical = ((chosen >> i) & 1) != 0;
      if (!TakeFirstFreed({&tensors[i].bytes, 1}, is_critical ? &Pass::critical : &Pass::late)) return false;
    }
    return true;
  }

  // Temporaries that began since, greatest first: as long as they have the size of something freed, they take its
  // place. Returns the size of the first that does not, 0 if all do.
  Bytes TakeMatches(const Summit& summit, std::uint32_t since, std::vector<Bytes>& freed) const {
    std::vector<Bytes> sizes;
    for (const BlockIndex block : summit.temporaries) {
      if (instance_[block].span.begin >= since) sizes.push_back(instance_[block].bytes);
    }
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    for (const Bytes bytes : sizes) {
      const auto same = std::find(freed.begin(), freed.end(), bytes);
      if (same == freed.end()) return bytes;
      freed.erase(same);
    }
    return 0;
  }

  bool Measure() {
    for (const Pass& pass : rounds_.passes) {
      Bytes bytes = 0;
      for (const std::vector<BlockIndex>* blocks : {&pass.critical, &pass.late, &pass.body}) {
        for (const BlockIndex block : *blocks) {
          bytes += instance_[block].bytes;
          rounds_.unit = std::gcd(rounds_.unit, instance_[block].bytes);
          rounds_.alignment = std::lcm(rounds_.alignment, instance_[block].alignment);
        }
      }
      rounds_.pass_bytes = bytes;
    }
    return rounds_.room_bytes % rounds_.unit == 0 && rounds_.unit % rounds_.alignment == 0;
  }

  const Instance& instance_;
  const std::vector<std::uint32_t> peaks_;
  const std::uint32_t end_;
  // By the number of peaks before the begin and before the end.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<BlockIndex>> groups_;
  std::vector<Summit> summits_;
  std::map<Bytes, std::vector<Span>> temporaries_;  // by begin
  PassRounds rounds_;
};

}  // namespace

bool PassRounds::interleaved() const { return !std::is_sorted(freed.begin(), freed.end()); }

bool IsOutsidePasses(const Instance& instance, const Item& item) {
  return item.persistent || std::uint64_t{item.span.length() + item.second.length()} * 3 >= instance.positions();
}

std::vector<PassRounds> FindPassRounds(const Instance& instance, std::uint32_t least_steps) {
  std::vector<BlockIndex> longs;
  std::vector<BlockIndex> shorts;
  Bytes largest = 0;
  for (BlockIndex block = 0; block < instance.size(); ++block) {
    const Item& item = instance[block];
    if (IsOutsidePasses(instance, item)) continue;
    const bool is_long = item.end_step - item.start_step >= least_steps && item.second.empty();
    (is_long ? longs : shorts).push_back(block);
    if (is_long) largest = std::max(largest, item.bytes);
  }
  if (longs.empty()) return {};
  std::vector<IterationReader> readers;
  for (Iteration& iteration : IterationsOf(LongLoad(instance, longs), largest)) {
    readers.emplace_back(instance, std::move(iteration));
  }
  for (const BlockIndex block : longs) {
    for (IterationReader& reader : readers) reader.AddLong(block);
  }
  const std::vector<Bytes> load = instance.Load();
  for (IterationReader& reader : readers) reader.FindSummits(load);
  for (const BlockIndex block : shorts) {
    for (IterationReader& reader : readers) {
      reader.AddShort(block);
      reader.AddTemporary(block);
    }
  }
  std::vector<PassRounds> found;
  for (IterationReader& reader : readers) {
    std::optional<PassRounds> rounds = reader.Read();
    if (rounds) found.push_back(*std::move(rounds));
  }
  return found;
}

}  // namespace stalloc::planner
