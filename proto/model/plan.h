// Value types of a plan. Meaning of the fields: proto/plan.proto.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

enum class EntryClass : std::uint8_t { kStatic = 1, kDynamic = 2, kOptional = 3, kPersistent = 4 };

inline constexpr std::uint32_t kNoSlot = 0xffffffffu;

struct Slot {
  Offset offset = 0;
  Bytes capacity = 0;
};

// One expected request.
struct Entry {
  Bytes bytes = 0;      // rounded up to kBlockAlignment
  Bytes min_bytes = 0;  // = bytes unless dynamic
  Bytes max_bytes = 0;
  std::uint32_t stream = 0;  // ordinal
  std::uint32_t slot = kNoSlot;
  EntryClass entry_class = EntryClass::kStatic;
  std::uint64_t expected_life = 0;    // requests; 0: not known to be freed
  std::uint32_t lent_slot = kNoSlot;  // index into DevicePlan::lent_slots; such an entry has no slot
};

struct Phase {
  Mark mark;
  std::uint32_t first_entry = 0;
};

struct Script {
  std::vector<Phase> phases;  // first_entry ascending
  std::vector<Entry> entries;
};

struct StreamEdge {
  std::uint32_t from_slot = 0;
  std::uint32_t to_slot = 0;
  std::uint32_t from_stream = 0;
  std::uint32_t to_stream = 0;
};

// A graphs' pool, whose bytes that no launch needs serve eager requests meanwhile.
struct LentPool {
  static constexpr Bytes kOwnUnit = Bytes{2} << 20;  // devices map memory in such units

  std::uint32_t number = 0;    // PoolPlusOne of the trace
  std::uint32_t requests = 0;  // of the pool that its layout is of
  std::uint64_t layout = 0;    // PoolLayout::hash
  Bytes bytes = 0;             // PoolLayout::bytes
  // Pieces of PoolLayout::kExtentUnit, by their number in the layout, that lie before all others; these keep their
  // order. Empty: all lie as in the layout.
  std::vector<std::uint32_t> first_pieces = {};
  // What has memory of the arena's own instead of the pool's, so that a block may lie partly in either: ascending,
  // apart. The last one may reach beyond the layout.
  std::vector<Slot> own = {};

  // With that.
  [[nodiscard]] Bytes extent() const {
    return own.empty() ? bytes : std::max(bytes, own.back().offset + own.back().capacity);
  }
  [[nodiscard]] Bytes own_bytes() const {
    Bytes sum = 0;
    for (const Slot& range : own) sum += range.capacity;
    return sum;
  }
};

struct Predicted {
  Bytes peak_live_bytes = 0;
  Bytes planned_peak_bytes = 0;
  Bytes upstream_peak_bytes = 0;
  Bytes lower_bound_bytes = 0;
  double efficiency = 0;
  Bytes expandable_bytes = 0;  // held for the traced run by PyTorch with expandable_segments; 0: not known
};

struct DevicePlan {
  DeviceIndex device = 0;
  Bytes arena_bytes = 0;
  std::vector<Slot> slots;
  std::vector<LentPool> lent_pools;  // their extents lie one after the other, in this order
  std::vector<Slot> lent_slots;      // offsets into these
  std::vector<Script> prologue;
  std::vector<Script> cycle;
  std::uint32_t turns = 1;  // the cycle is so many copies of the same scripts, which differ in their slots only
  Script kept;              // requests of fences whose blocks stay for good; no phases
  std::vector<StreamEdge> stream_edges;
  std::vector<StreamInfo> streams;
  Predicted predicted;
};

struct Plan {
  Fingerprint fingerprint;
  std::vector<DevicePlan> devices;
  std::string planner_version;
  std::string solver;
};

}  // namespace stalloc
