#include "planner/packing/search/sampled_classes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/packing/search/near_peak.h"
#include "planner/packing/search/size_classes.h"
#include "planner/packing/search/size_first_fit.h"
#include "planner/packing/search/window_sample.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kWindows = 3;           // to begin with
constexpr std::size_t kSampleStretches = 24;  // of time; the windows are taken from different ones
constexpr std::size_t kWindowBlocks = 6'000;  // that begin in a window
constexpr std::size_t kFinalists = 2;         // that are evaluated on everything; even, for two threads
constexpr std::size_t kMaxSizes = 500;        // more make an order by exact size slow, and bad
constexpr int kBatchesAtOnce = 2;
constexpr int kSamplePatience = 4;  // searches on a sample that lower nothing

class SampledSearch {
 public:
  SampledSearch(Evaluator& whole, const SolveOptions& options)
      : whole_(whole),
        options_(whole.state().OptionsOfPart(options)),
        centres_(LoadPeaks(whole.instance(), kSampleStretches)) {
    centres_.resize(std::min(centres_.size(), kWindows));
  }

  void Round() {
    whole_.state().budget().Charge(kWorkOfSort * whole_.instance().size());
    std::vector<SizeClassOptions> finalists =
        Search(WindowSample(whole_.instance(), centres_, kWindowBlocks).instance());
    if (finalists.empty()) finalists.push_back({.light = LightBytes(whole_.instance())});  // the budget is spent
    std::erase_if(finalists, [&](const SizeClassOptions& o) {
      return std::find(evaluated_.begin(), evaluated_.end(), o) != evaluated_.end();
    });
    if (finalists.size() > kFinalists) finalists.resize(kFinalists);
    whole_.Run(finalists.size(), [&](std::size_t i) { return SizeClassOrder(whole_.instance(), finalists[i]); });
    evaluated_.insert(evaluated_.end(), finalists.begin(), finalists.end());
    AddHighestPlace();
  }

 private:
  // The best first.
  std::vector<SizeClassOptions> Search(const Instance& sample) {
    SearchState state(sample, options_, whole_.state().budget());
    Evaluator evaluator(sample, state, options_.threads);
    SolveBySize(evaluator);
    SizeClassSearch search(sample, options_.seed + round_++, evaluated_);
    for (int idle = 0; idle < kSamplePatience && !state.Done(); ++idle) {
      const Bytes before = state.height();
      search.Run(evaluator, kBatchesAtOnce);
      if (state.height() < before) idle = -1;
    }
    return search.Best();
  }

  // What reaches highest shows where the sample is too small.
  void AddHighestPlace() {
    const Instance& instance = whole_.instance();
    const Incumbent best = whole_.state().best();
    BlockIndex highest = 0;
    for (BlockIndex i = 0; i < instance.size(); ++i) {
      if (best.offsets[i] + instance[i].bytes > best.offsets[highest] + instance[highest].bytes) highest = i;
    }
    const std::uint32_t place = instance[highest].span.begin;
    if (std::find(centres_.begin(), centres_.end(), place) == centres_.end()) centres_.push_back(place);
  }

  Evaluator& whole_;
  const SolveOptions options_;
  std::vector<std::uint32_t> centres_;
  std::vector<SizeClassOptions> evaluated_;
  std::uint64_t round_ = 0;
};

}  // namespace

bool HasManySizes(const Instance& instance) {
  std::vector<Bytes> sizes;
  for (const Item& item : instance.items()) {
    if (item.bytes >= LightBytes(instance)) sizes.push_back(item.bytes);
  }
  std::sort(sizes.begin(), sizes.end());
  const auto distinct = static_cast<std::size_t>(std::unique(sizes.begin(), sizes.end()) - sizes.begin());
  return distinct > kMaxSizes;
}

void SearchSampledClasses(Evaluator& evaluator, const SolveOptions& options, int patience) {
  SearchState& state = evaluator.state();
  SampledSearch search(evaluator, options);
  for (int idle = 0; idle < patience && !state.Done(); ++idle) {
    const Bytes before = state.height();
    search.Round();
    if (state.height() < before) idle = -1;
  }
}

}  // namespace stalloc::planner
