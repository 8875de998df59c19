// The layers of a traced run that could be recomputed or offloaded: what each of them holds away from its own passes,
// how long its forward pass takes, and the edit of the run that a choice of them makes. Bytes, nanoseconds. Pure.
//
//   layer      forward ]...... away ......[ made anew at once, in the order of the forward pass; freed as it was
//   output     stays as long as a later layer needs it
//   inputs     of a checkpoint stay up to the end of the layer's backward pass
//   offloaded  forward ]...... on the host ....[ back, all at once: offload_trips.h
//
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/facts/block_facts.h"
#include "planner/whatif/layer_inputs.h"
#include "planner/whatif/layer_visits.h"
#include "planner/whatif/offload_trips.h"
#include "planner/whatif/run_edit.h"

namespace stalloc::planner {

struct LayerUnit {
  std::string name;     // "GPT.blocks.3.mlp"
  std::string pattern;  // "GPT.blocks.*.mlp"
  std::vector<std::size_t> visits;
  Bytes away = 0;                          // that recomputing would free, of the iteration that has most
  std::int64_t forward_ns = 0;             // of an iteration, the median
  std::vector<std::int64_t> iteration_ns;  // forward passes of each iteration
  std::int64_t runs = 0;                   // forward passes of an iteration, the most
  bool at_least = false;                   // the trace does not show what the output is: the worse was taken
  // Layers that repeat store blocks for later calls, as keys and values of a cache: it has to be switched off, for they
  // would be stored twice. Then they go with the rest.
  bool stores = false;
  bool leaves = false;  // something else outlives the backward pass: what running it again leaves is not known
  Bytes left = 0;       // of all that outlives the backward pass, of all visits
};

enum class UnitUse : std::uint8_t { kAsItWas, kRecomputed, kOffloaded };

// Which blocks checkpoints keep as what layers were called with: also those that may be no input, or those that the
// trace shows alone.
enum class Inputs : std::uint8_t { kPossible, kTraced };

// What is chosen: of each unit, and of the optimizer's state.
struct UnitChoice {
  std::vector<UnitUse> uses;  // by unit
  bool state_offloaded = false;
  // For a run without accumulation: its iterations are the last of several micro-batches, and gradients of those before
  // are there from the beginning.
  bool accumulated = false;
  // For a run with accumulation: its iterations have the first of their micro-batches alone.
  bool single = false;

  bool operator==(const UnitChoice&) const = default;
};

class LayerUnits {
 public:
  // `facts` must outlive it.
  explicit LayerUnits(const DeviceFacts& facts);
  LayerUnits(const LayerUnits&) = delete;
  LayerUnits& operator=(const LayerUnits&) = delete;

  // Those that hold something away from their passes, by where they first run.
  [[nodiscard]] const std::vector<LayerUnit>& units() const { return units_; }
  // Index of the unit of this name; units().size(): there is none.
  [[nodiscard]] std::size_t Find(const std::string& name) const;
  [[nodiscard]] UnitChoice Nothing() const {
    return {std::vector<UnitUse>(units_.size(), UnitUse::kAsItWas), false, false, false};
  }
  // For units that hold no other one.
  [[nodiscard]] RunEdit EditOf(const UnitChoice& choice, Inputs inputs = Inputs::kPossible) const;

  // Of a unit: what is away at the event, what is away in the iteration, and whether the event is in its forward pass.
  [[nodiscard]] Bytes AwayAt(std::size_t unit, std::uint64_t event) const;
  [[nodiscard]] Bytes AwayIn(std::size_t unit, std::uint32_t segment) const;
  [[nodiscard]] bool IsInForward(std::size_t unit, std::uint64_t event) const;

  // For the last traced iteration, with the choice's offloaded layers.
  [[nodiscard]] std::vector<OffloadTrip> TripsOf(const UnitChoice& choice) const;

  // `parts`, by allocation, are of micro-batches after the first one of their step, which is so many times as large:
  // makes them of both. Where they overlap all are as large as the larger, since which made a block is not known.
  void ScaleFirst(double times, std::vector<BlockPart>* parts) const;

  // What goes over the bus in one direction in an iteration, as it was traced.
  [[nodiscard]] Bytes state_bytes() const { return state_bytes_; }
  // Pinned memory of the host for it: each tensor of a power of two, as torch takes it.
  [[nodiscard]] Bytes pinned_state_bytes() const { return pinned_state_bytes_; }

 private:
  // What one visit holds.
  struct Holding {
    std::vector<std::uint32_t> away;    // blocks, ascending
    std::vector<std::uint32_t> stored;  // of them, those that outlive the backward pass: see LayerUnit::stores
    std::uint64_t last_event = 0;       // of the last block that the backward pass needs: there a checkpoint stops
    bool kept_known = true;
    bool warms_up = false;  // the first of several calls: what it takes for good is no part of the layer
    Bytes away_bytes = 0;
    Bytes left_bytes = 0;  // besides what is stored
    Bytes all_left = 0;
  };

  [[nodiscard]] std::pair<std::size_t, std::size_t> BlocksIn(std::uint64_t begin_event, std::uint64_t end_event) const;
  [[nodiscard]] Holding HoldingOf(const LayerVisit& visit, bool warms_up) const;
  void TakeStored(const LayerVisit& visit, Holding* holding) const;
  void LeaveOutputs(Bytes kept, bool known, std::vector<std::uint32_t>* own) const;
  [[nodiscard]] std::vector<std::size_t> VisitsOf(const UnitChoice& choice, UnitUse use) const;
  void FindUnits();
  void FindState();
  void Recompute(std::size_t visit, const std::vector<KeptInput>& kept, RunEdit* edit) const;
  void RunAgain(const LayerVisit& visit, const Holding& holding, RunEdit* edit) const;
  [[nodiscard]] std::vector<std::uint32_t> OffloadedOf(std::size_t visit) const;
  void Offload(std::size_t visit, const std::vector<KeptInput>& kept, RunEdit* edit) const;
  void OffloadState(RunEdit* edit) const;
  void Accumulate(RunEdit* edit) const;
  void FindFollowing();
  [[nodiscard]] bool IsFollowing(std::uint64_t event) const;
  [[nodiscard]] std::uint32_t SegmentOf(const LayerVisit& visit) const;
  void DropFollowing(RunEdit* edit) const;
  void LeaveCachesOut(RunEdit* edit) const;
  void KeepInputs(const std::vector<KeptInput>& kept, RunEdit* edit) const;

  const DeviceFacts& facts_;
  std::vector<LayerVisit> visits_;
  Bytes noticed_bytes_ = 0;
  LayerInputs inputs_;
  std::vector<Holding> holdings_;                                   // by visit
  std::vector<OffloadPlace> places_;                                // by visit
  std::vector<std::pair<std::uint64_t, std::uint64_t>> following_;  // by iteration: passes after the first backward one
  bool overlap_ = false;  // a forward pass begins before the backward one of the micro-batch before it
  std::vector<LayerUnit> units_;
  std::vector<std::uint32_t> state_;  // blocks of the optimizer's state
  Bytes state_bytes_ = 0;
  Bytes pinned_state_bytes_ = 0;
};

// Whether one is the other's, or inside it.
[[nodiscard]] bool IsInside(const std::string& inner, const std::string& outer);

}  // namespace stalloc::planner
