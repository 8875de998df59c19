// The blocks that checkpoints of layers keep: what a layer was called with stays up to the end of its backward pass.
// Where a trace does not show what that was, all that was there before the forward pass and went after it, inside the
// model's, may have been it.
//
// What a layer has put into what it was called with, as keys and values into a cache, is stored for later calls. Where
// layers are recomputed that has to be switched off, for they would store twice: it is no input then, and goes as it
// would have gone by itself, at the latest. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "planner/facts/block_facts.h"
#include "planner/whatif/layer_visits.h"

namespace stalloc::planner {

struct KeptInput {
  std::uint32_t block = 0;  // index into DeviceTrace::allocations
  std::uint64_t until = 0;  // event before which it is needed
  bool traced = false;      // false: it may be no input
};

// A block that would have gone by the event.
struct StoredBlock {
  std::uint32_t block = 0;
  std::uint64_t gone = 0;
};

class LayerInputs {
 public:
  // Both must outlive it.
  LayerInputs(const DeviceFacts& facts, const std::vector<LayerVisit>& visits);

  // What checkpoints of these visits keep: each block once, ascending. `chosen`: indices of visits, ascending.
  [[nodiscard]] std::vector<KeptInput> KeptBy(const std::vector<std::size_t>& chosen) const;
  // What the visit was called with, no other layer but those in it or around it was, and its backward pass frees: where
  // its saved tensors go to the host, these go with them. Nothing where the trace does not record it.
  [[nodiscard]] const std::vector<std::uint32_t>& GoingWith(std::size_t visit) const { return going_[visit]; }
  // Those that stay longer than without what they are stored in.
  [[nodiscard]] const std::vector<StoredBlock>& stored() const { return stored_; }

 private:
  [[nodiscard]] bool IsPassing(std::uint32_t block) const;
  void FindTraced();
  [[nodiscard]] std::vector<std::size_t> OpenAt(const std::vector<std::size_t>& visits, std::uint64_t event) const;
  void TakeTraced(std::uint32_t block, std::size_t visit, std::map<std::uint32_t, std::size_t>* made_by);
  void FindStored(const std::map<std::uint32_t, std::size_t>& made_by);
  void FindGoing();
  void FindRoots();
  void AddPossible(const std::vector<std::size_t>& chosen, std::vector<KeptInput>* kept) const;

  const DeviceFacts& facts_;
  const std::vector<LayerVisit>& visits_;
  std::vector<StoredBlock> stored_;
  std::vector<std::vector<std::uint32_t>> traced_;            // blocks, by visit
  std::vector<std::vector<std::uint32_t>> going_;             // of them, by visit
  std::vector<std::pair<std::size_t, std::size_t>> in_root_;  // ranges of blocks that one outermost forward pass made
  std::vector<std::uint64_t> root_end_;                       // events, parallel
};

}  // namespace stalloc::planner
