// The steady model: what the traced iterations, compared position by position, say about each request of the cycle.
//
// Time of the cycle: its requests in order, script after script; the cycle has length() of them and repeats. An end
// beyond length() means that the block outlives its cycle. Ends are the latest over all traced iterations, mapped to
// the template by alignment, so that a free that comes a little later than in the template does not cost the block its
// place.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/analysis/alignment.h"
#include "planner/analysis/cycle.h"
#include "planner/analysis/lifetimes.h"
#include "planner/packing/problem/passes.h"
#include "proto/model/observed.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

// Why a request is not given a place.
enum class Unplanned : std::uint8_t {
  kPlanned,
  kDynamic,
  kOptional,
  kUnordered,
  kOtherStream,
  kRecorded,
  kLongLived,
  kCount
};
[[nodiscard]] const char* UnplannedName(Unplanned reason);

struct CycleEntry {
  std::uint32_t allocation = kNone;  // of the template
  EntryClass entry_class = EntryClass::kStatic;
  Unplanned unplanned = Unplanned::kPlanned;
  Bytes bytes = 0;
  Bytes min_bytes = 0;
  Bytes max_bytes = 0;
  Tick begin = 0;
  Tick end = 0;           // > begin; meaningless if resident
  bool resident = false;  // was never seen to be freed
};

struct PoolSchedule;

struct SteadyModel {
  Cycle cycle;
  std::uint32_t main_stream = 0;                 // the one with most bytes: the arena serves it
  Bytes small_bytes = 0;                         // requests below it are small (SmallBlockBytes) for the traced peak
  bool all_streams = true;                       // blocks of other streams, and recorded on such, have places, too
  const ObservedDevice* observed = nullptr;      // the model was widened by it (refine.h)
  const PoolSchedule* pools = nullptr;           // that requests of the cycle may lie in (lend.h)
  bool running = false;                          // for the traced run itself: what came before the cycle has places
  PackingPasses passes;                          // that make places for state
  std::vector<std::vector<CycleEntry>> scripts;  // cycle.period of them
  std::vector<Tick> begins;                      // of each script; one more: the length
  // Per segment: left is its script, right the segment. Absent for the set-up unless it stands in for a first
  // iteration.
  std::vector<std::optional<Alignment>> alignments;

  [[nodiscard]] Tick length() const { return begins.back(); }
  // Position in cycle time, counted from the cycle that `iteration` belongs to, of request `ordinal` of iteration `at`.
  // REQUIRES: iteration <= at.
  [[nodiscard]] Tick Position(std::uint32_t iteration, std::uint32_t at, std::uint32_t ordinal) const;
  // The same from below: one past the last request of the cycle that has certainly come before.
  [[nodiscard]] Tick Reached(std::uint32_t iteration, std::uint32_t at, std::uint32_t ordinal) const;
  // That a traced request corresponds to; null: none.
  [[nodiscard]] const CycleEntry* EntryOf(std::uint32_t segment, std::uint32_t ordinal) const;
  // Where the script of iteration `at` begins.
  [[nodiscard]] Tick BeginOf(std::uint32_t iteration, std::uint32_t at) const;
};

[[nodiscard]] std::uint32_t MainStream(const DeviceTrace& device);

// `all_streams`: blocks of every stream get places, also if another stream was recorded on them, and the plan lists the
// hand-overs between streams. Else only blocks that the main stream alone uses: a plan that never makes a stream wait.
[[nodiscard]] SteadyModel CompareIterations(const DeviceTrace& device, const Cycle& cycle, bool all_streams = true);

// What all iterations but this one say. REQUIRES: it is typical, and not of the template. `model` is of `device`; what
// widened it (refine.h) is left out, and so are pools.
[[nodiscard]] SteadyModel WithoutIteration(const DeviceTrace& device, const SteadyModel& model,
                                           std::uint32_t iteration);

// By segment: the alignment that compares all its requests; else null. Point into `model`.
[[nodiscard]] std::vector<const Alignment*> WholeAlignments(const DeviceTrace& device, const SteadyModel& model);

// Some request of the cycle varies in size, or is not in every iteration.
[[nodiscard]] bool HasVarying(const SteadyModel& model);

// On another stream than the model plans for, or recorded on one; else kPlanned.
[[nodiscard]] Unplanned StreamObstacle(const Allocation& allocation, const SteadyModel& model);

}  // namespace stalloc::planner
