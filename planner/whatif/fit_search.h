// The cheapest choice of what is recomputed or offloaded with which a run fits into so many bytes, live. Each choice is
// played over the whole run. Bytes, nanoseconds. Pure.
//
// Units are taken one by one, each time the one whose bytes at the peak cost least; where the peak moves, the next one
// is chosen for where it is then. Of layers that are called alike the first to run is taken first: it is away longest.
// For those that are offloaded, it is so many layers on as their copies take: copies that fit between two cost nothing.
// Then each is given back that is not needed any more. Every kind of layers alone, as many of them as it takes, is
// tried as well; the cheapest of all is the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "planner/whatif/layer_units.h"
#include "planner/whatif/run_edit.h"

namespace stalloc::planner {

struct FitCosts {
  double bus_bytes_per_ns = 25;                          // one way
  bool offload = true;                                   // false: the host's memory is the device's
  bool accumulated = false;                              // UnitChoice::accumulated, of every choice
  bool single = false;                                   // UnitChoice::single, of every choice
  Bytes host_bytes = std::numeric_limits<Bytes>::max();  // of pinned memory
};

struct FitResult {
  UnitChoice choice;
  EditedPeak peak;
  bool fits = false;         // else the choice is the one with the lowest peak that was found
  std::int64_t cost_ns = 0;  // of an iteration
  std::string bound;         // what would have to go next: "F 0", the phase of the peak
  Bytes host_bytes = 0;      // of pinned memory
  bool host_bound = false;   // the host has too little memory for a choice that was left out
};

// What choosing all units of a kind would do.
struct FitCandidate {
  std::string layers;  // a pattern or a name; "optimizer state"
  UnitUse use = UnitUse::kRecomputed;
  std::size_t count = 0;
  Bytes away = 0;            // of all of them, in an iteration
  Bytes peak = 0;            // with all of them
  std::int64_t cost_ns = 0;  // of all of them
  bool at_least = false;
};

// Thread-safe.
class FitSearch {
 public:
  // They must outlive it.
  FitSearch(const DeviceFacts& facts, const LayerUnits& units, const EditPlayer& player, const FitCosts& costs);

  // `parts`: sizes of blocks by the micro-batch; `scale`: k.
  [[nodiscard]] FitResult Find(Bytes budget, const std::vector<BlockPart>& parts, double scale) const;
  // The same, where graphs of all passes, in one pool that is theirs for good, have to fit into so many bytes, too; 0:
  // there are none.
  [[nodiscard]] FitResult FindWithGraphs(Bytes budget, Bytes graphs_budget, const std::vector<BlockPart>& parts,
                                         double scale) const;
  [[nodiscard]] std::vector<FitCandidate> Candidates(const std::vector<BlockPart>& parts, double scale) const;
  [[nodiscard]] std::int64_t CostOf(const UnitChoice& choice, double scale) const;
  // Pinned memory of the host, which is taken in chunks.
  [[nodiscard]] Bytes HostBytesOf(const UnitChoice& choice, double scale) const;

 private:
  struct Group {
    std::string name;
    UnitUse use = UnitUse::kRecomputed;
    std::vector<std::size_t> units;  // in the order in which they are taken
  };
  class Attempt;

  [[nodiscard]] UnitChoice Nothing() const;
  [[nodiscard]] std::vector<Group> GroupUnits() const;
  [[nodiscard]] std::int64_t CostOfUnit(std::size_t unit) const;
  [[nodiscard]] Group Offloading(Group group) const;
  void Greedy(Bytes budget, Attempt* attempt) const;
  void Uniform(const Group& group, Bytes budget, Attempt* attempt) const;
  void GiveBack(Bytes budget, Attempt* attempt) const;

  const DeviceFacts& facts_;
  const LayerUnits& units_;
  const EditPlayer& player_;
  const FitCosts costs_;
  std::vector<Group> groups_;
};

// Medians of the traced iterations after the first.
struct StepTimes {
  std::int64_t step_ns = 0;
  std::int64_t passes_ns = 0;  // forward and backward; without marks of passes, what is not the optimizer's
};
[[nodiscard]] StepTimes FindStepTimes(const DeviceFacts& facts, const Segmentation& segmentation);

}  // namespace stalloc::planner
