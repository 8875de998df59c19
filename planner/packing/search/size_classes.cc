#include "planner/packing/search/size_classes.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/packing/problem/random.h"
#include "planner/packing/search/near_peak.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kSizeClassBatch = 4;  // of any number of threads, so that the outcome does not depend on it
constexpr std::size_t kMaxThresholds = 4;
constexpr std::size_t kRandomTrials = 16;  // before neighbours are tried
constexpr std::size_t kSurvivors = 3;
constexpr std::size_t kSizeChoices = 64;

std::uint32_t Length(const Item& item) { return item.end_step - item.start_step; }

// What an order is sorted by; lexicographic.
struct Key {
  std::uint32_t group;
  std::uint64_t inside;
  BlockIndex block;

  bool operator<(const Key& other) const {
    if (group != other.group) return group < other.group;
    if (inside != other.inside) return inside < other.inside;
    return block < other.block;
  }
};

Key KeyOf(const SizeClassOptions& options, const Item& item, BlockIndex block) {
  if (item.bytes < options.light) {
    return {std::numeric_limits<std::uint32_t>::max(), std::numeric_limits<Bytes>::max() - item.bytes, block};
  }
  std::uint32_t group = 0;
  while (group < options.thresholds.size() && item.bytes < options.thresholds[group]) ++group;
  group = 2 * group + (Length(item) < options.long_steps ? 1 : 0);
  const std::uint64_t inside =
      options.ends_descending ? std::numeric_limits<std::uint32_t>::max() - item.end_step : item.start_step;
  return {group, inside, block};
}

}  // namespace

StackOrder SizeClassOrder(const Instance& instance, const SizeClassOptions& options) {
  std::vector<Key> keys;
  keys.reserve(instance.size());
  for (BlockIndex i = 0; i < instance.size(); ++i) keys.push_back(KeyOf(options, instance[i], i));
  std::sort(keys.begin(), keys.end());
  std::vector<BlockIndex> order;
  order.reserve(keys.size());
  for (const Key& key : keys) order.push_back(key.block);
  return StackOrder(order);
}

class SizeClassSearch::Impl {
 public:
  Impl(const Instance& instance, std::uint64_t seed, std::vector<SizeClassOptions> known)
      : instance_(instance), random_(seed), light_(LightBytes(instance)), known_(std::move(known)) {
    std::vector<Bytes> sizes;
    std::vector<std::uint32_t> lengths;
    for (const Item& item : instance.items()) {
      if (item.bytes < light_) continue;
      sizes.push_back(item.bytes);
      lengths.push_back(Length(item));
    }
    size_choices_ = Thinned(std::move(sizes));
    length_choices_ = Thinned(std::move(lengths));
  }

  void Run(Evaluator& evaluator, int batches) {
    for (int i = 0; i < batches && !evaluator.state().Done(); ++i) RunBatch(evaluator);
  }

  [[nodiscard]] std::vector<SizeClassOptions> Best() const {
    std::vector<SizeClassOptions> best;
    for (const Trial& trial : survivors_) best.push_back(trial.options);
    return best;
  }

 private:
  struct Trial {
    SizeClassOptions options;
    Bytes height;
  };

  // Distinct values, at most kSizeChoices of them, evenly spread over the sorted list.
  template <typename Value>
  static std::vector<Value> Thinned(std::vector<Value> values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    if (values.size() <= kSizeChoices) return values;
    std::vector<Value> thinned;
    for (std::size_t i = 0; i < kSizeChoices; ++i) thinned.push_back(values[i * values.size() / kSizeChoices]);
    return thinned;
  }

  template <typename Value>
  Value Choose(const std::vector<Value>& choices) {
    return choices.empty() ? Value{1} : choices[random_.Below(choices.size())];
  }

  void AddThreshold(SizeClassOptions& options) {
    options.thresholds.push_back(Choose(size_choices_));
    std::sort(options.thresholds.begin(), options.thresholds.end(), std::greater<>());
  }

  SizeClassOptions RandomOptions() {
    SizeClassOptions options;
    options.light = light_;
    for (std::size_t i = random_.Below(kMaxThresholds + 1); i > 0; --i) AddThreshold(options);
    options.ends_descending = random_.Below(3) == 0;
    if (random_.Below(3) == 0) options.long_steps = Choose(length_choices_);
    return options;
  }

  SizeClassOptions Neighbour(SizeClassOptions options) {
    switch (random_.Below(6)) {
      case 0:
        options.ends_descending = !options.ends_descending;
        break;
      case 1:
        options.long_steps = random_.Below(2) == 0 ? 0 : Choose(length_choices_);
        break;
      case 2:
        if (options.thresholds.size() < 2 * kMaxThresholds) AddThreshold(options);
        break;
      default:  // most often: move one threshold, or drop it
        if (!options.thresholds.empty()) {
          options.thresholds.erase(options.thresholds.begin() + random_.Below(options.thresholds.size()));
        }
        if (random_.Below(3) != 0) AddThreshold(options);
    }
    return options;
  }

  void RunBatch(Evaluator& evaluator) {
    std::array<SizeClassOptions, kSizeClassBatch> batch;
    for (SizeClassOptions& options : batch) {
      if (!known_.empty()) {
        options = std::move(known_.back());
        known_.pop_back();
        continue;
      }
      const bool random = tried_++ < kRandomTrials || survivors_.empty() || random_.Below(8) == 0;
      options = random ? RandomOptions() : Neighbour(survivors_[random_.Below(survivors_.size())].options);
    }
    // What is worse than the third-best so far cannot survive.
    const Bytes limit = survivors_.size() < kSurvivors ? SearchState::kNothingYet : survivors_.back().height;
    const std::vector<std::optional<Packing>> packings = evaluator.Run(
        kSizeClassBatch, [&](std::size_t i) { return SizeClassOrder(instance_, batch[i]); }, limit);
    for (std::size_t i = 0; i < kSizeClassBatch; ++i) {
      if (packings[i]) survivors_.push_back({batch[i], packings[i]->height});
    }
    std::stable_sort(survivors_.begin(), survivors_.end(),
                     [](const Trial& a, const Trial& b) { return a.height < b.height; });
    if (survivors_.size() > kSurvivors) survivors_.resize(kSurvivors);
  }

  const Instance& instance_;
  Random random_;
  const Bytes light_;
  std::vector<Bytes> size_choices_;
  std::vector<std::uint32_t> length_choices_;
  std::vector<SizeClassOptions> known_;  // still to be evaluated
  std::vector<Trial> survivors_;         // best first
  std::size_t tried_ = 0;
};

SizeClassSearch::SizeClassSearch(const Instance& instance, std::uint64_t seed, std::vector<SizeClassOptions> known)
    : impl_(std::make_unique<Impl>(instance, seed, std::move(known))) {}
std::vector<SizeClassOptions> SizeClassSearch::Best() const { return impl_->Best(); }
SizeClassSearch::~SizeClassSearch() = default;
void SizeClassSearch::Run(Evaluator& evaluator, int batches) { impl_->Run(evaluator, batches); }

}  // namespace stalloc::planner
