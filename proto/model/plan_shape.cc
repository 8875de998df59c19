#include "proto/model/plan_shape.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/model/pool_layout.h"

namespace stalloc {
namespace {

using std::to_string;

Error Violation(const std::string& where, const std::string& rule) { return Error{"plan, " + where + ": " + rule}; }

constexpr Bytes kOwnUnit = LentPool::kOwnUnit;
constexpr Bytes kMostLentBytes = Bytes{1} << 48;  // no device has more; sums of them stay in range

bool Aligned(Bytes value) { return value % kBlockAlignment == 0; }

// One device's plan with the words that lead to it.
class DeviceCheck {
 public:
  explicit DeviceCheck(const DevicePlan& plan) : plan_(plan), device_("device " + to_string(plan.device)) {
    for (const StreamInfo& stream : plan_.streams) ordinals_.push_back(stream.ordinal);
    std::sort(ordinals_.begin(), ordinals_.end());
  }

  // The first violated rule.
  [[nodiscard]] std::optional<Error> Run() const {
    if (auto error = CheckFrame()) return error;
    if (auto error = CheckStreams()) return error;
    for (std::size_t i = 0; i < plan_.slots.size(); ++i) {
      if (auto error = CheckSlot(i)) return error;
    }
    if (auto error = CheckLent()) return error;
    for (std::size_t i = 0; i < plan_.prologue.size(); ++i) {
      if (auto error = CheckScript(plan_.prologue[i], "prologue script " + to_string(i))) return error;
    }
    for (std::size_t i = 0; i < plan_.cycle.size(); ++i) {
      if (auto error = CheckScript(plan_.cycle[i], "cycle script " + to_string(i))) return error;
    }
    if (auto error = CheckScript(plan_.kept, "kept")) return error;
    for (std::size_t i = 0; i < plan_.kept.entries.size(); ++i) {
      if (plan_.kept.entries[i].lent_slot == kNoSlot) continue;
      return Violation(device_ + ", kept, entry " + to_string(i), "expected no lent slot, for its block stays, found " +
                                                                      to_string(plan_.kept.entries[i].lent_slot));
    }
    for (std::size_t i = 0; i < plan_.stream_edges.size(); ++i) {
      if (auto error = CheckEdge(i)) return error;
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<Error> CheckFrame() const {
    if (plan_.device < kCpuDevice) return Violation(device_, "expected -1 (CPU) or a device's index");
    if (!Aligned(plan_.arena_bytes)) {
      return Violation(device_, "arena_bytes " + to_string(plan_.arena_bytes) + " is not a multiple of 512");
    }
    if (plan_.slots.size() >= kNoSlot) return Violation(device_, "too many slots: " + to_string(plan_.slots.size()));
    if (plan_.cycle.empty()) return Violation(device_, "expected at least one cycle script, found none");
    return CheckTurns();
  }

  [[nodiscard]] std::optional<Error> CheckTurns() const {
    const std::size_t scripts = plan_.cycle.size();
    if (plan_.turns == 0 || scripts % plan_.turns != 0) {
      return Violation(device_, "expected turns to divide the cycle's " + to_string(scripts) + " scripts, found " +
                                    to_string(plan_.turns));
    }
    const std::size_t period = scripts / plan_.turns;
    for (std::size_t i = period; i < scripts; ++i) {
      const std::size_t first = plan_.cycle[i % period].entries.size();
      if (plan_.cycle[i].entries.size() == first) continue;
      return Violation(device_ + ", cycle script " + to_string(i), "expected as many entries as its first turn has, " +
                                                                       to_string(first) + ", found " +
                                                                       to_string(plan_.cycle[i].entries.size()));
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Error> CheckStreams() const {
    const auto twice = std::adjacent_find(ordinals_.begin(), ordinals_.end());
    if (twice != ordinals_.end()) return Violation(device_, "stream ordinal " + to_string(*twice) + " is listed twice");
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Error> CheckSlot(std::size_t index) const {
    return CheckSlotIn(plan_.slots[index], "slot " + to_string(index), plan_.arena_bytes, "the arena's ");
  }

  [[nodiscard]] static std::optional<Error> CheckFirstPieces(const LentPool& pool, const std::string& where) {
    const Bytes pieces = pool.bytes / PoolLayout::kExtentUnit;
    std::vector<bool> found(static_cast<std::size_t>(pieces));
    for (const std::uint32_t piece : pool.first_pieces) {
      if (piece >= pieces) {
        return Violation(where, "expected first pieces below " + to_string(pieces) + ", found " + to_string(piece));
      }
      if (found[piece]) return Violation(where, "piece " + to_string(piece) + " is listed twice");
      found[piece] = true;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Error> CheckLent() const {
    Bytes bytes = 0;
    for (std::size_t i = 0; i < plan_.lent_pools.size(); ++i) {
      const LentPool& pool = plan_.lent_pools[i];
      const std::string where = device_ + ", lent pool " + to_string(i);
      if (pool.number == 0 || pool.requests == 0) {
        return Violation(where, "expected a number and requests above 0, found " + to_string(pool.number) + " and " +
                                    to_string(pool.requests));
      }
      const auto is_same = [&](const LentPool& other) { return other.number == pool.number; };
      if (std::any_of(plan_.lent_pools.begin(), plan_.lent_pools.begin() + static_cast<std::ptrdiff_t>(i), is_same)) {
        return Violation(where, "number " + to_string(pool.number) + " is listed twice");
      }
      if (pool.bytes == 0 || !Aligned(pool.bytes) || pool.bytes > kMostLentBytes - bytes) {
        return Violation(where, "expected a positive multiple of 512 bytes, at most " +
                                    to_string(kMostLentBytes - bytes) + ", found " + to_string(pool.bytes));
      }
      if (auto error = CheckFirstPieces(pool, where)) return error;
      if (auto rule = BrokenOwnRule(pool, kMostLentBytes - bytes)) return Violation(where, *rule);
      bytes += pool.extent();
    }
    if (plan_.lent_slots.size() >= kNoSlot) {
      return Violation(device_, "too many lent slots: " + to_string(plan_.lent_slots.size()));
    }
    for (std::size_t i = 0; i < plan_.lent_slots.size(); ++i) {
      if (auto error = CheckSlotIn(plan_.lent_slots[i], "lent slot " + to_string(i), bytes, "the lent pools' ")) {
        return error;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] static std::optional<std::string> BrokenOwnRule(const LentPool& pool, Bytes most) {
    Offset end = 0;  // of the one before
    for (const Slot& own : pool.own) {
      const bool fits = own.capacity > 0 && own.offset % kOwnUnit == 0 && own.capacity % kOwnUnit == 0 &&
                        own.offset >= end && own.offset <= pool.bytes && own.offset <= most &&
                        own.capacity <= most - own.offset;
      if (!fits) {
        return "expected own bytes in multiples of " + to_string(kOwnUnit) + " that begin in [" + to_string(end) +
               ", " + to_string(pool.bytes) + "], found offset " + to_string(own.offset) + " and capacity " +
               to_string(own.capacity);
      }
      end = own.offset + own.capacity;
    }
    return std::nullopt;
  }

  // `end`: where the space ends that it lies in.
  [[nodiscard]] std::optional<Error> CheckSlotIn(const Slot& slot, const std::string& name, Bytes end,
                                                 const char* space) const {
    const auto violation = [&](const std::string& rule) { return Violation(device_ + ", " + name, rule); };
    if (!Aligned(slot.offset)) return violation("offset " + to_string(slot.offset) + " is not a multiple of 512");
    if (slot.capacity == 0 || !Aligned(slot.capacity)) {
      return violation("capacity " + to_string(slot.capacity) + " is not a positive multiple of 512");
    }
    if (slot.offset > end || slot.capacity > end - slot.offset) {
      return violation("offset " + to_string(slot.offset) + " and capacity " + to_string(slot.capacity) +
                       " reach beyond " + space + to_string(end) + " bytes");
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Error> CheckScript(const Script& script, const std::string& name) const {
    const std::string where = device_ + ", " + name;
    std::uint32_t previous = 0;
    for (std::size_t i = 0; i < script.phases.size(); ++i) {
      const std::uint32_t first = script.phases[i].first_entry;
      const auto violation = [&](const std::string& rule) {
        return Violation(where + ", phase " + to_string(i), rule);
      };
      if (first > script.entries.size()) {
        return violation("first_entry " + to_string(first) + " of " + to_string(script.entries.size()) + " entries");
      }
      if (first < previous) {
        return violation("first_entry " + to_string(first) + " after " + to_string(previous) + " is not ascending");
      }
      previous = first;
    }
    for (std::size_t i = 0; i < script.entries.size(); ++i) {
      if (auto rule = BrokenEntryRule(script.entries[i])) return Violation(where + ", entry " + to_string(i), *rule);
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<std::string> BrokenEntryRule(const Entry& entry) const {
    if (entry.bytes == 0 || !Aligned(entry.bytes)) {
      return "bytes " + to_string(entry.bytes) + " is not a positive multiple of 512";
    }
    if (entry.min_bytes > entry.bytes || entry.bytes > entry.max_bytes) {
      return "expected min_bytes <= bytes <= max_bytes, found " + to_string(entry.min_bytes) + ", " +
             to_string(entry.bytes) + ", " + to_string(entry.max_bytes);
    }
    if (!KnownStream(entry.stream)) return "stream ordinal " + to_string(entry.stream) + " is not listed";
    if (entry.slot != kNoSlot && entry.lent_slot != kNoSlot) {
      return "expected a slot or a lent slot, found both, " + to_string(entry.slot) + " and " +
             to_string(entry.lent_slot);
    }
    if (auto rule = BrokenSlotRule(entry.bytes, entry.slot, plan_.slots, "slot ")) return rule;
    return BrokenSlotRule(entry.bytes, entry.lent_slot, plan_.lent_slots, "lent slot ");
  }

  [[nodiscard]] static std::optional<std::string> BrokenSlotRule(Bytes bytes, std::uint32_t index,
                                                                 const std::vector<Slot>& slots, const char* what) {
    if (index == kNoSlot) return std::nullopt;
    if (index >= slots.size()) return what + to_string(index) + " of " + to_string(slots.size());
    if (slots[index].capacity < bytes) {
      return "bytes " + to_string(bytes) + " in " + what + to_string(index) + " of capacity " +
             to_string(slots[index].capacity);
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Error> CheckEdge(std::size_t index) const {
    const StreamEdge& edge = plan_.stream_edges[index];
    const std::string where = device_ + ", stream edge " + to_string(index);
    for (const std::uint32_t slot : {edge.from_slot, edge.to_slot}) {
      if (slot >= plan_.slots.size()) {
        return Violation(where, "slot " + to_string(slot) + " of " + to_string(plan_.slots.size()));
      }
    }
    for (const std::uint32_t stream : {edge.from_stream, edge.to_stream}) {
      if (!KnownStream(stream)) return Violation(where, "stream ordinal " + to_string(stream) + " is not listed");
    }
    return std::nullopt;
  }

  // A plan that lists no streams at all knows one, its first.
  [[nodiscard]] bool KnownStream(std::uint32_t ordinal) const {
    return ordinals_.empty() ? ordinal == 0 : std::binary_search(ordinals_.begin(), ordinals_.end(), ordinal);
  }

  const DevicePlan& plan_;
  const std::string device_;
  std::vector<std::uint32_t> ordinals_;  // of streams, ascending
};

}  // namespace

Status CheckPlanShape(const Plan& plan) {
  if (plan.devices.empty()) return Error{"plan: expected at least one device, found none"};
  for (std::size_t i = 0; i < plan.devices.size(); ++i) {
    const DevicePlan& device = plan.devices[i];
    const bool twice = std::any_of(plan.devices.begin(), plan.devices.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const DevicePlan& other) { return other.device == device.device; });
    if (twice) return Error{"plan: device " + to_string(device.device) + " is listed twice"};
    if (auto error = DeviceCheck(device).Run()) return *error;
  }
  return Ok{};
}

}  // namespace stalloc
