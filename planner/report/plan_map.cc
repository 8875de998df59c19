#include "planner/report/plan_map.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/model/pass_name.h"

namespace stalloc::planner {
namespace {

// Half-open, in positions.
struct Stretch {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::string PhaseText(const Mark& mark) {
  switch (mark.kind) {
    case MarkKind::kMicrobatch: {
      const std::string chunk = mark.chunk == 0 ? "" : absl::StrCat(" chunk ", mark.chunk);
      return absl::StrCat(PassName(mark.pass), " ", mark.index, chunk);
    }
    case MarkKind::kOptimizer:
      return "optimizer";
    default:
      return "";
  }
}

class Painter {
 public:
  Painter(const DevicePlan& plan, const DeviceFacts& facts, const PlanMapSize& size)
      : plan_(plan), facts_(facts), area_(size.columns * size.rows) {
    map_.columns = size.columns;
    map_.rows = size.rows;
    map_.arena_bytes = plan.arena_bytes;
    map_.slots = plan.slots.size();
    map_.planned.resize(size.columns);
    map_.unplanned.resize(size.columns);
    for (const Script& script : plan.prologue) map_.cycle_begin += script.entries.size();
    map_.positions = map_.cycle_begin;
    for (const Script& script : plan.cycle) map_.positions += script.entries.size();
  }

  PlanMap Paint() {
    std::vector<double> planned(map_.columns);
    std::vector<double> unplanned(map_.columns);
    std::uint64_t position = 0;
    for (std::size_t s = 0; s < plan_.prologue.size() + plan_.cycle.size(); ++s) {
      const bool in_cycle = s >= plan_.prologue.size();
      const Script& script = in_cycle ? plan_.cycle[s - plan_.prologue.size()] : plan_.prologue[s];
      NamePhases(script, position, s);
      for (std::size_t e = 0; e < script.entries.size(); ++e, ++position) {
        const Entry& entry = script.entries[e];
        for (const Stretch& stretch : LifeOf(entry, position, in_cycle)) {
          if (entry.lent_slot != kNoSlot) continue;  // in a graphs' pool, which is not shown
          AddToColumns(stretch, entry.bytes, entry.slot == kNoSlot ? &unplanned : &planned);
          if (entry.slot != kNoSlot) PaintSlot(plan_.slots[entry.slot], stretch, ClassOf(s, e, entry));
        }
      }
    }
    SumColumns(planned, &map_.planned);
    SumColumns(unplanned, &map_.unplanned);
    Encode();
    return std::move(map_);
  }

 private:
  [[nodiscard]] std::array<Stretch, 2> LifeOf(const Entry& entry, std::uint64_t position, bool in_cycle) const {
    const bool stays = entry.expected_life == 0 && entry.slot != kNoSlot;
    if (!in_cycle) {
      return {{{position, stays ? map_.positions : std::min(position + entry.expected_life, map_.cycle_begin)}, {}}};
    }
    if (stays || entry.expected_life >= map_.positions - map_.cycle_begin) {
      return {{{map_.cycle_begin, map_.positions}, {}}};
    }
    const std::uint64_t end = position + entry.expected_life;
    const std::uint64_t beyond = end > map_.positions ? end - map_.positions : 0;
    return {{{position, end - beyond}, {map_.cycle_begin, map_.cycle_begin + beyond}}};
  }

  // The plan does not say where its entries come from: the segment is believed where it requests the same bytes.
  [[nodiscard]] MemoryClass ClassOf(std::size_t script, std::size_t position, const Entry& entry) const {
    const DeviceTrace& device = facts_.device;
    if (script < device.segments.size() && position < device.segments[script].allocations.size()) {
      const std::uint32_t index = device.segments[script].allocations[position];
      if (device.allocations[index].bytes == entry.bytes) return facts_.blocks[index].memory_class;
    }
    switch (entry.entry_class) {
      case EntryClass::kPersistent:
        return script == 0 ? MemoryClass::kWeights : MemoryClass::kOptimizerState;
      case EntryClass::kDynamic:
      case EntryClass::kOptional:
        return MemoryClass::kDynamic;
      case EntryClass::kStatic:
        break;
    }
    return MemoryClass::kOther;
  }

  // Calls with the index and the covered share of every cell that [begin, end) of `whole` touches.
  template <typename Call>
  static void ForCells(double begin, double end, double whole, std::size_t cells, const Call& call) {
    const double unit = whole / static_cast<double>(cells);
    const auto first = static_cast<std::size_t>(begin / unit);
    for (std::size_t cell = first; cell < cells && static_cast<double>(cell) * unit < end; ++cell) {
      const double low = std::max(begin, static_cast<double>(cell) * unit);
      const double high = std::min(end, static_cast<double>(cell + 1) * unit);
      if (high > low) call(cell, (high - low) / unit);
    }
  }

  void PaintSlot(const Slot& slot, const Stretch& stretch, MemoryClass memory_class) {
    const auto low = static_cast<double>(slot.offset);
    const auto high = static_cast<double>(slot.offset + slot.capacity);
    ForCells(low, high, static_cast<double>(map_.arena_bytes), map_.rows, [&](std::size_t row, double height) {
      ForStretch(stretch, [&](std::size_t column, double width) {
        area_[row * map_.columns + column][static_cast<std::size_t>(memory_class)] +=
            static_cast<float>(height * width);
      });
    });
    const std::uint64_t from = std::max(stretch.begin, map_.cycle_begin);
    if (stretch.end > from) cycle_area_ += static_cast<double>(slot.capacity) * static_cast<double>(stretch.end - from);
  }

  template <typename Call>
  void ForStretch(const Stretch& stretch, const Call& call) const {
    ForCells(static_cast<double>(stretch.begin), static_cast<double>(stretch.end), static_cast<double>(map_.positions),
             map_.columns, call);
  }

  void AddToColumns(const Stretch& stretch, Bytes bytes, std::vector<double>* columns) const {
    ForStretch(stretch,
               [&](std::size_t column, double width) { (*columns)[column] += static_cast<double>(bytes) * width; });
  }

  static void SumColumns(const std::vector<double>& from, std::vector<Bytes>* to) {
    std::transform(from.begin(), from.end(), to->begin(), [](double sum) { return static_cast<Bytes>(sum); });
  }

  void NamePhases(const Script& script, std::uint64_t position, std::size_t index) {
    const bool in_cycle = index >= plan_.prologue.size();
    map_.phases.push_back({position, index == 0  ? "set-up"
                                     : !in_cycle ? absl::StrCat("warm-up ", index)
                                     : plan_.cycle.size() == 1
                                         ? "steady iteration"
                                         : absl::StrCat("steady iteration ", index - plan_.prologue.size() + 1)});
    for (const Phase& phase : script.phases) {
      const std::string name = PhaseText(phase.mark);
      if (phase.mark.edge == MarkEdge::kBegin && !name.empty()) {
        map_.phases.push_back({position + phase.first_entry, name});
      }
    }
  }

  void Encode() {
    for (const auto& cell : area_) {
      const auto most = std::max_element(cell.begin(), cell.end());
      float full = 0;
      for (const float share : cell) full += share;
      const int tenth = std::clamp(static_cast<int>(std::lround(9 * full)), *most > 0 ? 1 : 0, 9);
      map_.classes += *most > 0 ? static_cast<char>('0' + (most - cell.begin())) : '.';
      map_.fullness += static_cast<char>('0' + tenth);
    }
    const double all = static_cast<double>(map_.arena_bytes) * static_cast<double>(map_.positions - map_.cycle_begin);
    map_.idle_share = all > 0 ? std::max(0.0, 1 - cycle_area_ / all) : 0;
  }

  const DevicePlan& plan_;
  const DeviceFacts& facts_;
  PlanMap map_;
  std::vector<std::array<float, kMemoryClasses>> area_;  // by cell: share that each class takes
  double cycle_area_ = 0;                                // bytes x positions of slots in the period
};

}  // namespace

PlanMap DrawPlan(const DevicePlan& plan, const DeviceFacts& facts, const PlanMapSize& size) {
  return Painter(plan, facts, size).Paint();
}

}  // namespace stalloc::planner
