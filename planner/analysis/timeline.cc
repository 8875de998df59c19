#include "planner/analysis/timeline.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "planner/analysis/lend.h"
#include "planner/packing/finish/state_space.h"

namespace stalloc::planner {
namespace {

Unplanned UnderChoice(Unplanned reason, Bytes max_bytes, const SteadyModel& model, const SlotChoice& choice) {
  const bool varies = reason == Unplanned::kDynamic || reason == Unplanned::kOptional;
  return varies && choice.GivesSlotTo(max_bytes, model.small_bytes) ? Unplanned::kPlanned : reason;
}

Unplanned UnderChoice(const CycleEntry& entry, const SteadyModel& model, const SlotChoice& choice) {
  const bool comes_as_planned = entry.unplanned == Unplanned::kPlanned && !entry.resident;
  if (comes_as_planned && choice.policy == SlotPolicy::kWhatStays && entry.max_bytes >= model.small_bytes) {
    return Unplanned::kUnordered;
  }
  return UnderChoice(entry.unplanned, entry.max_bytes, model, choice);
}

// Copies of one period so that every block that can be planned with some number of copies is.
std::uint32_t CopiesNeeded(const SteadyModel& model, const SlotChoice& choice) {
  const std::uint32_t most = MostCopies(model);
  std::uint32_t copies = 1;
  for (const auto& script : model.scripts) {
    for (const CycleEntry& entry : script) {
      if (UnderChoice(entry, model, choice) != Unplanned::kPlanned || entry.resident) continue;
      const Tick periods = (entry.end - entry.begin + model.length() - 1) / model.length();
      if (periods <= most) copies = std::max(copies, static_cast<std::uint32_t>(periods));
    }
  }
  return copies;
}

class TimelineBuilder {
 public:
  TimelineBuilder(const DeviceTrace& device, const SteadyModel& model, const SlotChoice& choice, std::uint32_t turns)
      : device_(device), model_(model), choice_(choice) {
    timeline_.copies = std::max(CopiesNeeded(model, choice), turns);
    timeline_.in_turns = turns > 1;
  }

  Timeline Build() {
    OpenScripts();
    for (std::uint32_t c = 0; c < model_.cycle.period; ++c) {
      for (std::uint32_t e = 0; e < model_.scripts[c].size(); ++e) PlaceCycleEntry(c, e);
    }
    for (std::uint32_t s = 0; s < timeline_.prologue; ++s) {
      for (std::uint32_t e = 0; e < timeline_.scripts[s].entries.size(); ++e) {
        PlacePrologueEntry(s, e);
      }
    }
    PlaceLeftovers();
    for (std::uint32_t index = 0; index < device_.allocations.size(); ++index) {
      if (IsKept(device_.allocations[index])) PlaceKept(index);
    }
    timeline_.twins.resize(timeline_.problem.blocks.size(), kNone);
    if (model_.pools != nullptr) Lend(FindLending(), &timeline_);
    for (std::size_t i = 0; i < timeline_.problem.blocks.size(); ++i) {
      timeline_.problem.blocks[i].id = i;
    }
    if (HasVarying(model_) && model_.passes.Have(PackingPass::kStateEarly)) {
      // What varies needs space in one piece: state that has its place from the beginning on, though it comes later,
      // can lie at the bottom (planner/packing/finish/sink.h).
      BeginStateEarly(timeline_.end, LoadBound(timeline_.problem), &timeline_.problem);
    }
    return std::move(timeline_);
  }

 private:
  [[nodiscard]] Tick axis_length() const { return timeline_.end - timeline_.cycle_begin; }

  void OpenScripts() {
    const Cycle& cycle = model_.cycle;
    timeline_.prologue = cycle.warmup + 1;
    for (std::uint32_t segment = 0; segment < timeline_.prologue; ++segment) {
      TimelineScript& script = OpenScript(segment);
      script.entries.reserve(device_.segments[segment].allocations.size());
      for (const std::uint32_t index : device_.segments[segment].allocations) {
        script.entries.push_back(PrologueEntry(segment, index));
      }
    }
    timeline_.cycle_begin = next_begin();
    for (std::uint32_t copy = 0; copy < timeline_.copies; ++copy) {
      for (std::uint32_t c = 0; c < cycle.period; ++c) {
        TimelineScript& script = OpenScript(cycle.warmup + c + 1);
        script.entries.reserve(model_.scripts[c].size());
        for (const CycleEntry& entry : model_.scripts[c]) {
          script.entries.push_back({entry.allocation, kNone, kNone, entry.entry_class,
                                    UnderChoice(entry, model_, choice_), LifeOf(entry), entry.bytes, entry.min_bytes,
                                    entry.max_bytes});
        }
      }
    }
    timeline_.end = next_begin();
    timeline_.problem.blocks.reserve(timeline_.end);  // at most one a request
  }

  // The same in any number of turns: ranks whose problems are equal without turns share a packing with turns.
  [[nodiscard]] Lending FindLending() const {
    if (timeline_.in_turns) return BuildTimeline(device_, model_, choice_).lending;
    return ChooseLent(*model_.pools, device_, model_, timeline_);
  }

  [[nodiscard]] Tick next_begin() const {
    if (timeline_.scripts.empty()) return 0;
    const TimelineScript& last = timeline_.scripts.back();
    return last.begin + static_cast<Tick>(last.entries.size());
  }

  TimelineScript& OpenScript(std::uint32_t segment) {
    const Tick begin = next_begin();
    TimelineScript& script = timeline_.scripts.emplace_back();
    script.segment = segment;
    script.begin = begin;
    return script;
  }

  [[nodiscard]] static std::uint32_t LifeOf(const CycleEntry& entry) {
    return entry.resident ? 0 : static_cast<std::uint32_t>(entry.end - entry.begin);
  }

  // Position, in its script of the period, of the steady request that a prologue request corresponds to; kNone if none.
  [[nodiscard]] std::uint32_t TwinOf(std::uint32_t segment, std::uint32_t ordinal) const {
    const std::optional<Alignment>& alignment = model_.alignments[segment];
    return alignment.has_value() ? alignment->ToLeft(ordinal) : kNone;
  }

  // The set-up is no iteration: it may request anything.
  [[nodiscard]] static bool IsResized(const CycleEntry& twin, std::uint32_t segment, const TimelineEntry& entry) {
    return segment > 0 && twin.bytes != entry.bytes;
  }

  [[nodiscard]] TimelineEntry PrologueEntry(std::uint32_t segment, std::uint32_t index) const {
    const Allocation& allocation = device_.allocations[index];
    TimelineEntry entry{index,
                        kNone,
                        kNone,
                        EntryClass::kStatic,
                        StreamObstacle(allocation, model_),
                        0,
                        allocation.bytes,
                        allocation.bytes,
                        allocation.bytes};
    const CycleEntry* twin = model_.EntryOf(segment, allocation.ordinal);
    if (!allocation.freed() || FreedAtExit(device_, allocation)) {
      entry.entry_class = EntryClass::kPersistent;
    } else if (twin != nullptr && (twin->entry_class == EntryClass::kDynamic || IsResized(*twin, segment, entry))) {
      entry.entry_class = EntryClass::kDynamic;
      entry.min_bytes = std::min(entry.bytes, twin->min_bytes);
      entry.max_bytes = std::max(entry.bytes, twin->max_bytes);
      entry.unplanned = entry.unplanned == Unplanned::kPlanned
                            ? UnderChoice(Unplanned::kDynamic, entry.max_bytes, model_, choice_)
                            : entry.unplanned;
    }
    return entry;
  }

  [[nodiscard]] Bytes CapacityOf(const TimelineEntry& entry) const {
    return choice_.CapacityOf(entry.entry_class, entry.bytes, entry.max_bytes, model_.small_bytes);
  }

  std::uint32_t AddBlock(const TimelineEntry& entry, Lifetime life, std::optional<Lifetime> second) {
    Block block;
    block.bytes = CapacityOf(entry);
    block.life = life;
    block.second_life = second;
    block.alignment = kBlockAlignment;
    block.stream = device_.allocations[entry.allocation].stream;
    block.recorded = device_.allocations[entry.allocation].foreign_stream;
    block.persistent = entry.entry_class == EntryClass::kPersistent;
    timeline_.problem.blocks.push_back(block);
    return static_cast<std::uint32_t>(timeline_.problem.blocks.size() - 1);
  }

  TimelineEntry& CopyOf(std::uint32_t c, std::uint32_t e, std::uint32_t copy) {
    return timeline_.scripts[timeline_.prologue + copy * model_.cycle.period + c].entries[e];
  }

  void PlaceCycleEntry(std::uint32_t c, std::uint32_t e) {
    const CycleEntry& entry = model_.scripts[c][e];
    if (UnderChoice(entry, model_, choice_) != Unplanned::kPlanned) return;
    if (entry.resident) {
      const std::uint32_t block = AddBlock(CopyOf(c, e, 0), {timeline_.cycle_begin, timeline_.end}, std::nullopt);
      for (std::uint32_t copy = 0; copy < timeline_.copies; ++copy) {
        CopyOf(c, e, copy).block = block;
      }
      return;
    }
    if (entry.end - entry.begin > axis_length()) {
      for (std::uint32_t copy = 0; copy < timeline_.copies; ++copy) {
        CopyOf(c, e, copy).unplanned = Unplanned::kLongLived;
      }
      return;
    }
    for (std::uint32_t copy = 0; copy < timeline_.copies; ++copy) PlaceCopy(entry, c, e, copy);
  }

  // But in turns, two copies share a block if each stays within its own copy: then they are never alive together.
  void PlaceCopy(const CycleEntry& entry, std::uint32_t c, std::uint32_t e, std::uint32_t copy) {
    TimelineEntry& place = CopyOf(c, e, copy);
    const Tick shift = timeline_.cycle_begin + copy * model_.length();
    const Lifetime life{entry.begin + shift, entry.end + shift};
    if (entry.end <= model_.length()) {
      if (copy % 2 == 1 && !timeline_.in_turns) {
        place.block = CopyOf(c, e, copy - 1).block;
        timeline_.problem.blocks[place.block].second_life = life;
      } else {
        place.block = AddBlock(place, life, std::nullopt);
      }
    } else if (life.end <= timeline_.end) {
      place.block = AddBlock(place, life, std::nullopt);
    } else {
      place.block =
          AddBlock(place, {life.begin, timeline_.end}, Lifetime{timeline_.cycle_begin, life.end - axis_length()});
    }
  }

  // On the axis, and beyond its end for blocks that more than one cycle goes by; kStays if no free is known.
  static constexpr Tick kStays = std::numeric_limits<Tick>::max();
  [[nodiscard]] Tick PrologueEnd(const Allocation& allocation) const {
    if (!allocation.freed() || FreedAtExit(device_, allocation)) return kStays;
    if (allocation.free_segment < timeline_.prologue) {
      return timeline_.scripts[allocation.free_segment].begin + allocation.free_ordinal;
    }
    const std::uint32_t first = model_.cycle.warmup;
    return timeline_.cycle_begin + model_.Position(first, allocation.free_segment - 1, allocation.free_ordinal);
  }

  // Where sizes vary one traced block says little of the next: the steady twin's lives count, too.
  [[nodiscard]] std::uint32_t PrologueLife(std::uint32_t s, std::uint32_t e, Lifetime traced) const {
    if (traced.end == kStays) return 0;
    const auto life = static_cast<std::uint32_t>(traced.end - traced.begin);
    const CycleEntry* twin = model_.EntryOf(s, e);
    const bool varies = timeline_.scripts[s].entries[e].entry_class == EntryClass::kDynamic;
    return varies && twin != nullptr ? std::max(life, LifeOf(*twin)) : life;
  }

  void PlacePrologueEntry(std::uint32_t s, std::uint32_t e) {
    TimelineEntry& entry = timeline_.scripts[s].entries[e];
    const Tick begin = timeline_.scripts[s].begin + e;
    const Tick traced_end = std::max(PrologueEnd(device_.allocations[entry.allocation]), begin + 1);
    entry.life = PrologueLife(s, e, {begin, traced_end});
    if (entry.unplanned != Unplanned::kPlanned || model_.running) return;
    const Tick end = std::min(traced_end, timeline_.end);
    if (end == timeline_.end && entry.entry_class != EntryClass::kDynamic) {
      entry.entry_class = EntryClass::kPersistent;
      entry.life = 0;
    }
    if (end <= timeline_.cycle_begin || entry.entry_class == EntryClass::kPersistent) {
      AddPrologueBlock({s, e, {begin, end}});
    } else if (const std::uint32_t twin = TwinBlock(s, e); !JoinArc(twin, {begin, end}, &entry)) {
      leftovers_.push_back({s, e, {begin, end}});
    }
  }

  // A block of the prologue that lives into the cycle, and whose twin is no arc.
  struct Leftover {
    std::uint32_t script = 0;
    std::uint32_t entry = 0;
    Lifetime life;
  };

  void AddPrologueBlock(const Leftover& leftover) {
    TimelineEntry& entry = timeline_.scripts[leftover.script].entries[leftover.entry];
    entry.block = AddBlock(entry, leftover.life, std::nullopt);
    timeline_.twins.resize(timeline_.problem.blocks.size(), kNone);
    timeline_.twins.back() = TwinBlock(leftover.script, leftover.entry);
  }

  // What set-up leaves to the first iterations (a batch that is fetched ahead) is there in place of what each cycle
  // leaves to the next: it takes the place of an arc that ends with it, or as soon as may be afterwards.
  void PlaceLeftovers() {
    std::map<std::pair<Bytes, std::uint32_t>, std::vector<std::uint32_t>> arcs;
    const auto key = [](const Block& block) { return std::pair(block.bytes, block.stream); };
    if (!leftovers_.empty()) {
      for (std::uint32_t i = 0; i < timeline_.problem.blocks.size(); ++i) {
        if (IsArc(timeline_.problem.blocks[i])) arcs[key(timeline_.problem.blocks[i])].push_back(i);
      }
    }
    for (const Leftover& leftover : leftovers_) {
      TimelineEntry& entry = timeline_.scripts[leftover.script].entries[leftover.entry];
      std::uint32_t best = kNone;
      for (const std::uint32_t arc : arcs[{CapacityOf(entry), device_.allocations[entry.allocation].stream}]) {
        const Block& block = timeline_.problem.blocks[arc];
        if (!IsArc(block) || block.second_life->end < leftover.life.end) continue;
        const bool sooner = best == kNone || block.second_life->end < timeline_.problem.blocks[best].second_life->end;
        if (sooner) best = arc;
      }
      if (!JoinArc(best, leftover.life, &entry)) AddPrologueBlock(leftover);
    }
  }

  // What a fence leaves live for good, as far as a later iteration shows it. Small ones have upstream's pool.
  [[nodiscard]] bool IsKept(const Allocation& allocation) const {
    const bool stays = !allocation.freed() || FreedAtExit(device_, allocation);
    return !model_.running && allocation.fenced && (allocation.flags & (kAllocCaptured | kAllocParallel)) == 0 &&
           stays && allocation.segment + 1 < device_.segments.size() && allocation.bytes >= model_.small_bytes &&
           StreamObstacle(allocation, model_) == Unplanned::kPlanned;
  }

  void PlaceKept(std::uint32_t index) {
    const Bytes bytes = device_.allocations[index].bytes;
    TimelineEntry entry{index, kNone, kNone, EntryClass::kPersistent, Unplanned::kPlanned, 0, bytes, bytes, bytes};
    entry.block = AddBlock(entry, {0, timeline_.end}, std::nullopt);
    timeline_.kept.push_back(entry);
  }

  // The block of the steady twin in the script that comes as long before the cycle's end as script s before its
  // beginning.
  [[nodiscard]] std::uint32_t TwinBlock(std::uint32_t s, std::uint32_t e) const {
    const std::uint32_t twin = TwinOf(s, e);
    const std::size_t back = timeline_.prologue - s;
    if (twin == kNone || back > timeline_.scripts.size() - timeline_.prologue) return kNone;
    return timeline_.scripts[timeline_.scripts.size() - back].entries[twin].block;
  }

  // One that was joined already begins its second life in the prologue.
  [[nodiscard]] bool IsArc(const Block& block) const {
    return block.second_life.has_value() && block.second_life->begin == timeline_.cycle_begin &&
           block.life.end == timeline_.end;
  }

  // Gives the entry the place of this block (kNone: none), if that is an arc which begins after the entry's block ends.
  bool JoinArc(std::uint32_t index, Lifetime life, TimelineEntry* entry) {
    if (index == kNone) return false;
    Block& arc = timeline_.problem.blocks[index];
    const bool same_stream = arc.stream == device_.allocations[entry->allocation].stream;
    if (!IsArc(arc) || !same_stream || arc.bytes != CapacityOf(*entry) || life.end > arc.life.begin) {
      return false;
    }
    arc.second_life = Lifetime{life.begin, std::max(life.end, arc.second_life->end)};
    entry->block = index;
    return true;
  }

  const DeviceTrace& device_;
  const SteadyModel& model_;
  const SlotChoice choice_;
  std::vector<Leftover> leftovers_;
  Timeline timeline_;
};

}  // namespace

void RenumberBlocks(const std::vector<std::uint32_t>& numbers, Timeline* timeline) {
  const auto renumber = [&](std::uint32_t* block) {
    if (*block != kNone) *block = numbers[*block];
  };
  for (TimelineScript& script : timeline->scripts) {
    for (TimelineEntry& entry : script.entries) renumber(&entry.block);
  }
  for (TimelineEntry& entry : timeline->kept) renumber(&entry.block);
  for (std::uint32_t& twin : timeline->twins) renumber(&twin);
}

Timeline BuildTimeline(const DeviceTrace& device, const SteadyModel& model, const SlotChoice& choice,
                       std::uint32_t turns) {
  return TimelineBuilder(device, model, choice, turns).Build();
}

}  // namespace stalloc::planner
