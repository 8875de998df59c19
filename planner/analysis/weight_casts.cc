#include "planner/analysis/weight_casts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>

#include "absl/container/flat_hash_map.h"

namespace stalloc::planner {
namespace {

using Blocks = std::vector<std::uint32_t>;  // indices into DeviceTrace::allocations

// The gradient of something that was cast, as it becomes one in the first type.
struct Return {
  std::uint32_t cast_gradient = 0;  // index into DeviceTrace::allocations
  std::uint32_t gradient = 0;       // the same
  bool named = false;               // the gradient is a weight's
};

// Weights whose casts have so many bytes.
struct CastSize {
  std::size_t weights = 0;
  std::vector<bool> pass;       // by return of a backward pass: it is a weight's, and not that of something else
  bool repeats = false;         // all iterations have such passes and no others
  std::vector<Return> returns;  // in order
};

class CastFinder {
 public:
  explicit CastFinder(const DeviceTrace& device) : device_(device) {}

  std::vector<std::uint32_t> Run() {
    FindReturns();
    for (auto& [bytes, size] : sizes_) CountWeights(&size);
    std::erase_if(sizes_, [](const auto& entry) { return entry.second.weights == 0; });
    if (sizes_.empty()) return {};
    for (const auto& [bytes, size] : sizes_) TakeGradients(size);
    std::map<Bytes, Blocks> blocks;
    for (std::uint32_t i = 0; i < device_.allocations.size(); ++i) {
      const Allocation& one = device_.allocations[i];
      if (IsUnnamed(one) && sizes_.contains(one.requested())) blocks[one.requested()].push_back(i);
    }
    for (const auto& [bytes, of_size] : blocks) TakeCasts(sizes_.at(bytes).weights, of_size);
    std::sort(events_.begin(), events_.end());
    return std::move(events_);
  }

 private:
  static bool IsUnnamed(const Allocation& one) { return !one.outside && one.role == TensorRole::kNone; }

  [[nodiscard]] const Allocation& At(std::uint32_t block) const { return device_.allocations[block]; }

  // What is freed between an allocation and the next one, of half its bytes.
  void FindReturns() {
    auto free = device_.frees.begin();
    for (std::uint32_t i = 0; i < device_.allocations.size(); ++i) {
      const Allocation& gradient = At(i);
      const std::uint32_t next = i + 1 < device_.allocations.size() ? At(i + 1).event : kNever;
      bool found = gradient.outside || (gradient.role != TensorRole::kNone && gradient.role != TensorRole::kGradient);
      for (; free != device_.frees.end() && At(*free).free_event < next; ++free) {
        const Allocation& freed = At(*free);
        if (found || freed.free_event < gradient.event || freed.segment != gradient.segment || !IsUnnamed(freed) ||
            2 * freed.requested() != gradient.requested()) {
          continue;
        }
        sizes_[freed.requested()].returns.push_back({*free, i, gradient.role == TensorRole::kGradient});
        found = true;
      }
    }
  }

  // Where an iteration's first backward pass ends: the gradients of weights have names in it alone.
  void CountWeights(CastSize* size) const {
    std::map<std::uint32_t, std::vector<bool>> iterations;  // whether each return has a name, by segment
    for (const Return& one : size->returns) iterations[At(one.gradient).segment].push_back(one.named);
    for (const auto& [segment, named] : iterations) {
      const auto weights = static_cast<std::size_t>(std::ranges::count(named, true));
      if (weights <= size->weights) continue;
      size->weights = weights;
      size->pass.assign(named.begin(), std::find(named.rbegin(), named.rend(), true).base());
    }
    size->repeats = size->weights > 0 && std::ranges::all_of(iterations, [&](const auto& iteration) {
                      return iteration.second.size() % size->pass.size() == 0;
                    });
  }

  void TakeGradients(const CastSize& size) {
    std::uint32_t segment = kNone;
    std::size_t number = 0;  // in the iteration
    for (const Return& one : size.returns) {
      const Allocation& gradient = At(one.gradient);
      number = gradient.segment == segment ? number + 1 : 0;
      segment = gradient.segment;
      if (!one.named && !(size.repeats && size.pass[number % size.pass.size()])) continue;
      Take(one.cast_gradient);
      if (!one.named && gradient.freed() && gradient.free_segment == gradient.segment) Take(one.gradient);
      cast_gradients_.emplace(one.cast_gradient, one.gradient);
    }
  }

  // `blocks`: as large as the casts of so many weights, in order.
  void TakeCasts(std::size_t weights, const Blocks& blocks) {
    std::uint32_t segment = kNone;
    Blocks gradients;   // of casts, of this backward pass so far
    Blocks waiting;     // since the last backward pass
    Blocks recomputed;  // in this one
    Blocks taken;       // in this iteration
    for (const std::uint32_t block : blocks) {
      const Allocation& one = At(block);
      if (one.segment != segment) {
        segment = one.segment;
        for (Blocks* const list : {&gradients, &waiting, &recomputed, &taken}) list->clear();
      }
      if (!cast_gradients_.contains(block)) {
        const bool again = (one.flags & kAllocRecomputed) != 0;
        if (IsUsed(block) && (again || gradients.empty())) (again ? recomputed : waiting).push_back(block);
        continue;
      }
      gradients.push_back(block);
      if (gradients.size() < weights) continue;
      TakeCastsOf(gradients, waiting, recomputed, &taken);
      for (Blocks* const list : {&gradients, &waiting, &recomputed}) list->clear();
    }
  }

  // Something is requested while the block is there.
  [[nodiscard]] bool IsUsed(std::uint32_t block) const {
    return block + 1 < device_.allocations.size() && At(block + 1).event < At(block).free_event;
  }

  // For one backward pass, which has these `gradients` of casts: as many casts, but for those that are there from
  // before.
  void TakeCastsOf(const Blocks& gradients, Blocks waiting, Blocks recomputed, Blocks* taken) {
    const std::uint32_t begin = At(gradients.front()).event;
    const std::uint32_t end = At(cast_gradients_.at(gradients.back())).event;
    const auto kept = static_cast<std::size_t>(
        std::ranges::count_if(*taken, [&](std::uint32_t cast) { return At(cast).free_event > begin; }));
    std::size_t missing = gradients.size() - std::min(gradients.size(), kept);
    const auto take = [&](Blocks* from, Blocks::iterator one) {
      taken->push_back(*one);
      Take(*one);
      from->erase(one);
    };
    // An autocast that is still open keeps all of them.
    Blocks stay;
    std::ranges::copy_if(waiting, std::back_inserter(stay),
                         [&](std::uint32_t cast) { return At(cast).free_event > end; });
    if (stay.size() >= missing) {
      TakeEvenly(missing, stay, taken);
      return;
    }
    if (kept == 0) {
      for (const std::uint32_t gradient : gradients) {
        if (const auto found = FindFreedFor(gradient, &recomputed); found != recomputed.end()) take(&recomputed, found);
      }
    }
    for (const std::uint32_t gradient : gradients) {
      if (const auto found = FindFreedFor(gradient, &waiting); found != waiting.end() && missing > 0) {
        take(&waiting, found);
        --missing;
      }
    }
    // Those that autograd does not keep go with the autocast, last of what goes before the backward pass.
    std::ranges::stable_sort(waiting, std::ranges::greater(),
                             [&](std::uint32_t cast) { return At(cast).free_event < begin ? At(cast).free_event : 0; });
    for (; missing > 0 && !waiting.empty(); --missing) take(&waiting, waiting.begin());
  }

  // The pass frees a cast between the requests for its gradient and for the weight's. The end: none of `casts` is.
  [[nodiscard]] Blocks::iterator FindFreedFor(std::uint32_t gradient, Blocks* casts) const {
    const std::uint32_t begin = At(gradient).event;
    const std::uint32_t end = At(cast_gradients_.at(gradient)).event;
    return std::ranges::find_if(
        *casts, [&](std::uint32_t cast) { return begin < At(cast).free_event && At(cast).free_event < end; });
  }

  void TakeEvenly(std::size_t count, const Blocks& blocks, Blocks* taken) {
    for (std::size_t i = 0; i < count; ++i) {
      taken->push_back(blocks[i * blocks.size() / count]);
      Take(taken->back());
    }
  }

  void Take(std::uint32_t block) { events_.push_back(At(block).event); }

  const DeviceTrace& device_;
  std::map<Bytes, CastSize> sizes_;                                   // by the bytes of a cast
  absl::flat_hash_map<std::uint32_t, std::uint32_t> cast_gradients_;  // and what each becomes
  std::vector<std::uint32_t> events_;
};

}  // namespace

std::vector<std::uint32_t> FindWeightCasts(const DeviceTrace& device) { return CastFinder(device).Run(); }

}  // namespace stalloc::planner
