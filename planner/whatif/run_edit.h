// A traced run with changes: blocks that go earlier, come back, stay longer, or are there besides, each at an event of
// the trace; and what is live then. Bytes. Pure.
//
//   traced   block  |-------------------------|
//   edited   block  |------)   away   (-------|     two actions: it goes, and is made anew
//            extra              |---|               a block that the trace does not have
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/analysis/sweep.h"
#include "planner/facts/block_facts.h"
#include "planner/whatif/scaling.h"

namespace stalloc::planner {

// What happens before an event of the trace; those of one event happen in the order of the list.
struct EditAction {
  std::uint64_t event = 0;
  std::uint32_t block = 0;  // index into DeviceTrace::allocations; after them, into RunEdit::extras
  bool makes = false;       // else it goes
};

// A block that the trace does not have: as large as another, or of so many bytes.
struct ExtraBlock {
  std::uint32_t like = kNone;  // index into DeviceTrace::allocations
  Bytes bytes = 0;             // where `like` is kNone
};

struct RunEdit {
  std::vector<EditAction> actions;  // ascending by event
  std::vector<ExtraBlock> extras;
  std::vector<std::uint32_t> staying;  // blocks whose traced free does not count: an action lets them go

  // Orders the actions; those of one event stay in the order in which they were added.
  void Sort();
};

// Sizes of all blocks as they were.
[[nodiscard]] std::vector<Bytes> TracedSizes(const DeviceFacts& facts);
// Sizes of all blocks with k times the micro-batch, each rounded up to kBlockAlignment.
[[nodiscard]] std::vector<Bytes> SizesAt(const std::vector<BlockPart>& parts, double scale);

struct EditedPeak {
  Bytes live = 0;
  std::uint64_t event = 0;  // of the trace, where it is reached
  // If all that passes allocate lay in a pool that holds its most for good, as captured graphs' does: the pool, and the
  // most of everything else.
  Bytes pool = 0;
  Bytes outside_pool = 0;
};

// Plays edits over one device. `facts` must outlive it. Thread-safe.
class EditPlayer {
 public:
  explicit EditPlayer(const DeviceFacts& facts);
  // `sizes`: by allocation.
  [[nodiscard]] EditedPeak Play(const RunEdit& edit, const std::vector<Bytes>& sizes) const;

 private:
  std::vector<SweepStep> steps_;
  std::vector<bool> in_pass_;  // by allocation: made in a forward or backward pass, and not for good
};

// The edited run as a trace. `device` is one of `traced`; `sizes` by allocation of it, empty: as traced. What was held
// while tracing, uses, and what layers were called with, are left out.
[[nodiscard]] Trace EditTrace(const Trace& trace, const DeviceTrace& device, const RunEdit& edit,
                              const std::vector<Bytes>& sizes);

}  // namespace stalloc::planner
