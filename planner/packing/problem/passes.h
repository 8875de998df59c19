// Passes: the searches and finish passes that make a packing lower or tidier, beyond first fit by size. Each can be
// left out, so that `plan_quality_bench --without` measures its worth; CONTRIBUTING.md says when one stays.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>

namespace stalloc::planner {

enum class PackingPass : std::uint8_t {
  kSampledClasses,  // search/sampled_classes.h
  kLayerClusters,   // search/layer_clusters.h
  kSizeClasses,     // search/size_classes.h
  kExactSearch,     // search/exact_search.h
  // Finish passes: what follows is for a run, and most of it costs no height.
  kPrefetchSlack,  // finish/prefetch_slack.h
  kTidyLanes,      // finish/tidy.h: streams apart
  kTidyLoose,      // finish/tidy.h: blocks that are never alive near the peak
  kApart,          // finish/apart.h
  kSink,           // finish/sink.h
  kTurns,          // analysis/turns.h
  kJoinLoose,      // analysis/turns.h, JoinLoose
  kStateEarly,     // finish/state_space.h, BeginStateEarly
  kStateSpace,     // finish/state_space.h, KeepStateSpace
  kCount
};
inline constexpr PackingPass kFirstFinishPass = PackingPass::kPrefetchSlack;
inline constexpr auto kPassNames = std::to_array<const char*>(
    {"sampled-classes", "layer-clusters", "size-classes", "exact-search", "prefetch-slack", "tidy-lanes", "tidy-loose",
     "apart", "sink", "turns", "join-loose", "state-early", "state-space"});
static_assert(kPassNames.size() == static_cast<std::size_t>(PackingPass::kCount));

// All of them, but those that were left out.
class PackingPasses {
 public:
  void LeaveOut(PackingPass pass) { without_.set(static_cast<std::size_t>(pass)); }
  [[nodiscard]] bool Have(PackingPass pass) const { return !without_.test(static_cast<std::size_t>(pass)); }

 private:
  std::bitset<kPassNames.size()> without_;
};

}  // namespace stalloc::planner
