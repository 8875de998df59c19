#include "allocator/engine/follow/script_index.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace stalloc {
namespace {

using namespace tuning;  // NOLINT: numbers only

bool IsDynamic(const Entry& entry) { return entry.entry_class == EntryClass::kDynamic; }

std::int32_t Points(double bits) { return static_cast<std::int32_t>(kPointsPerBit * bits); }

// How often the fixed entries have each size, and how often varying entries are expected to have it by chance if each
// size in the range that was seen is as likely as any other.
struct Frequency {
  double fixed = 0;
  double chance = 0;
};
using Frequencies = std::map<Granules, Frequency>;

Frequencies CountSizes(const Script& script) {
  Frequencies sizes;
  const bool varies = std::any_of(script.entries.begin(), script.entries.end(), IsDynamic);
  for (const Entry& entry : script.entries) {
    if (IsDynamic(entry)) continue;
    const bool doubtful = varies && entry.entry_class == EntryClass::kOptional;
    sizes[ToGranules(entry.bytes)].fixed += doubtful ? 0 : 1;
  }
  std::map<Granules, double> density_change;  // at this size and above
  for (const Entry& entry : script.entries) {
    if (!IsDynamic(entry)) continue;
    const Granules low = ToGranules(entry.min_bytes);
    const Granules high = ToGranules(entry.max_bytes);
    const double density = 1.0 / (high - low + 1.0);
    density_change[low] += density;
    density_change[high + 1] -= density;
  }
  double density = 0;
  auto change = density_change.begin();
  for (auto& [granules, frequency] : sizes) {
    for (; change != density_change.end() && change->first <= granules; ++change) density += change->second;
    frequency.chance = std::max(density, 0.0);
  }
  return sizes;
}

}  // namespace

ScriptIndex::ScriptIndex(const Script& script) : size_(static_cast<std::int32_t>(script.entries.size())) {
  FillSizes(script);
  FillColumns(script);
  FillGrams();
}

void ScriptIndex::FillSizes(const Script& script) {
  const Frequencies frequencies = CountSizes(script);
  const auto entries = static_cast<double>(script.entries.size());
  unknown_worth_ = std::min(Points(std::log2(entries + 1)), kMaxWorth);
  for (const auto& [granules, frequency] : frequencies) {
    if (granules == 0) continue;
    const double bits = std::log2(entries / std::max(frequency.fixed + frequency.chance, 1.0));
    const bool anchor = frequency.fixed > 0 && frequency.chance <= kMaxChanceHits * frequency.fixed;
    known_.Insert(granules, {std::clamp(Points(bits), kMinWorth, kMaxWorth), anchor, true});
  }
}

void ScriptIndex::FillColumns(const Script& script) {
  const std::size_t padded = script.entries.size() + 2 * kPadding;
  sizes_.assign(padded, kNever);
  weak_low_.assign(padded, kNever);
  weak_span_.assign(padded, 0);
  blur_.assign(padded, -1);
  skip_costs_.assign(padded + 1, kSkip);
  for (std::size_t i = 0; i < script.entries.size(); ++i) {
    const Entry& entry = script.entries[i];
    const std::size_t at = i + kPadding;
    IsDynamic(entry) ? FillVarying(entry, at) : FillFixed(entry, at);
    if (entry.entry_class == EntryClass::kOptional) skip_costs_[at + 1] = kSkipOptional;
  }
  std::partial_sum(skip_costs_.begin(), skip_costs_.end(), skip_costs_.begin());
}

void ScriptIndex::FillVarying(const Entry& entry, std::size_t at) {
  const Granules low = ToGranules(std::min(entry.min_bytes, entry.bytes));
  const Granules high = std::max(ToGranules(std::max(entry.max_bytes, entry.bytes)), low);
  MatchWeakly(at, low, high);
  blur_[at] = static_cast<std::int16_t>(Points(1 + std::log2(1.0 + 2.0 * (high - low))));
}

void ScriptIndex::FillFixed(const Entry& entry, std::size_t at) {
  const Granules granules = ToGranules(entry.bytes);
  sizes_[at] = granules != 0 ? granules : kNever;
  if (granules == 0 || IsAnchorSize(granules)) return;
  MatchWeakly(at, granules, granules);
  blur_[at] = static_cast<std::int16_t>(Points(2 + std::log2(1.0 + granules)));
}

void ScriptIndex::MatchWeakly(std::size_t at, Granules low, Granules high) {
  weak_low_[at] = std::max<Granules>(low / kWeakMargin, 1);
  weak_span_[at] =
      static_cast<Granules>(std::min<std::uint64_t>(std::uint64_t{high} * kWeakMargin, kNever - 1)) - weak_low_[at];
}

void ScriptIndex::FillGrams() {
  for (std::int32_t position = 0; position < size_; ++position) {
    if (IsAnchorSize(SizeAt(position))) anchors_.push_back(position);
  }
  for (std::size_t end = kAnchorsOfPlace; end <= anchors_.size(); ++end) {
    auto anchor = static_cast<std::uint32_t>(end - kAnchorsOfPlace);
    const std::uint64_t hash = HashGram([&] { return AnchorSize(anchor++); });
    grams_.push_back({hash, static_cast<std::uint32_t>(end - 1)});
  }
  std::ranges::stable_sort(grams_, {}, &Gram::hash);
}

}  // namespace stalloc
