// What a block holds. Where the trace names the tensors inside (parameters, gradients, optimizer state, buffers,
// inputs), they decide, wherever the block was allocated: parameters and buffers are weights. Else it is what lifetime
// and marks say:
//
//   weights          persistent, from before the first micro-batch: also gradient buffers and master weights made there
//   gradients        from a backward pass or what follows it, alive when the optimizer begins
//   casts of weights  in half their bytes, which autocast makes, and their gradients: weight_casts.h
//   optimizer state  persistent, from the optimizer's part of an iteration, which ends where its step returns
//   activations      from a forward pass, freed in a later phase; recomputed in a backward pass, and alive after the
//                    recomputation
//   inputs           from outside of passes and optimizer, alive where the next pass begins, gone an iteration later
//   temporaries      freed in the phase (or recomputation) they come from, or later without reaching the optimizer
//   dynamic          their size, or whether they are there at all, varies from iteration to iteration
//   other            what the loop keeps; inside fences, captured, from parallel regions; buffers that a forward pass
//                    leaves live
//
// A trace that names gradients, or inputs, names all of them: what has no name is none, but for buffers that a backward
// pass makes (buckets of communication). Without micro-batch marks a temporary is what lives for at most 1 % of its
// iteration's requests. Without an optimizer's mark gradients count as activations, and all that iterations leave
// live as optimizer state.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/analysis/phase_map.h"
#include "planner/analysis/recomputation.h"
#include "planner/analysis/steady.h"

namespace stalloc::planner {

enum class MemoryClass : std::uint8_t {
  kWeights,
  kGradients,
  kOptimizerState,
  kActivations,
  kInputs,
  kTemporaries,
  kDynamic,
  kOther,
  kCasts,
  kCount
};
inline constexpr std::size_t kMemoryClasses = static_cast<std::size_t>(MemoryClass::kCount);
[[nodiscard]] const char* MemoryClassName(MemoryClass memory_class);  // "optimizer state"

using BytesByClass = std::array<Bytes, kMemoryClasses>;

class MemoryClassifier {
 public:
  // `model` may be null: then nothing is dynamic. All must outlive this.
  MemoryClassifier(const DeviceTrace& device, const SteadyModel* model, const PhaseMap& phases);

  [[nodiscard]] MemoryClass Classify(const Allocation& allocation) const;
  // What it would be if it did not vary: never kDynamic.
  [[nodiscard]] MemoryClass ClassifyByLifetime(const Allocation& allocation) const;
  // Requests from the block's own up to its free, or to the end of the trace; 0 for what is in no script.
  [[nodiscard]] std::uint64_t LifeInRequests(const Allocation& allocation) const;

 private:
  [[nodiscard]] bool Varies(const Allocation& allocation) const;
  [[nodiscard]] MemoryClass ClassOfPersistent(const Allocation& allocation) const;
  [[nodiscard]] MemoryClass ClassOfTransient(const Allocation& allocation) const;
  [[nodiscard]] MemoryClass ClassOfUnmarked(const Allocation& allocation) const;
  [[nodiscard]] MemoryClass ClassOutsideOfPasses(const Allocation& allocation) const;
  [[nodiscard]] bool IsCast(const Allocation& allocation) const;
  [[nodiscard]] bool ReachesOptimizer(const Allocation& allocation) const;
  // The recomputation that the block was allocated in; null: none.
  [[nodiscard]] const RecomputedRange* RecomputationOf(const Allocation& allocation) const;
  [[nodiscard]] bool IsShort(const Allocation& allocation) const;

  const DeviceTrace& device_;
  const SteadyModel* model_;
  const PhaseMap& phases_;
  std::vector<RecomputedRange> recomputed_;
  std::vector<std::uint32_t> casts_;  // FindWeightCasts
  bool names_gradients_ = false;      // the trace does, and so all of them
  bool names_inputs_ = false;
  std::vector<std::uint64_t> requests_before_;  // of each segment; one more: all
};

// Weights and state: alive for more than a whole iteration, or for good. In the last iteration it is unknown.
[[nodiscard]] bool IsPersistent(const DeviceTrace& device, const Allocation& allocation);

// The classes that the marks do not distinguish: one sentence each.
[[nodiscard]] std::vector<std::string> ClassNotes(const PhaseMap& phases);

}  // namespace stalloc::planner
