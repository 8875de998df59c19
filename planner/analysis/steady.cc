#include "planner/analysis/steady.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

// What the samples of one entry add up to.
struct Evidence {
  std::optional<Tick> end;           // latest
  std::optional<Tick> doubtful_end;  // in iterations that cannot be compared: where there is nothing better
  Tick alive_until = 0;              // at least, of blocks whose end is not known
  std::uint32_t compared = 0;
  std::uint32_t found = 0;
};

class Comparer {
 public:
  Comparer(const DeviceTrace& device, const Cycle& cycle, bool all_streams) : device_(device) {
    model_.cycle = cycle;
    model_.all_streams = all_streams;
    model_.main_stream = MainStream(device);
    OpenScripts();
    AlignSegments();
  }

  // Another choice of typical iterations changes no alignment.
  Comparer(const DeviceTrace& device, const SteadyModel& other, const Cycle& cycle) : device_(device) {
    model_.cycle = cycle;
    model_.all_streams = other.all_streams;
    model_.main_stream = other.main_stream;
    model_.alignments = other.alignments;
    OpenScripts();
  }

  SteadyModel Compare() {
    const Cycle& cycle = model_.cycle;
    for (std::uint32_t iteration = cycle.warmup; iteration < cycle.traced; ++iteration) {
      TakeIteration(iteration);
    }
    const auto steady = cycle.typical.begin() + cycle.warmup;
    if (std::count(steady, cycle.typical.end(), true) <= static_cast<std::ptrdiff_t>(cycle.period)) {
      TakeWarmup();
    }
    Conclude();
    return std::move(model_);
  }

 private:
  static std::uint32_t SegmentOf(std::uint32_t iteration) { return iteration + 1; }

  void OpenScripts() {
    Tick begin = 0;
    for (std::uint32_t c = 0; c < model_.cycle.period; ++c) {
      const auto& requests = device_.segments[SegmentOf(model_.cycle.warmup + c)].allocations;
      std::vector<CycleEntry>& script = model_.scripts.emplace_back();
      model_.begins.push_back(begin);
      for (const std::uint32_t index : requests) {
        const Allocation& allocation = device_.allocations[index];
        CycleEntry entry;
        entry.allocation = index;
        entry.bytes = entry.min_bytes = entry.max_bytes = allocation.bytes;
        entry.begin = begin++;
        script.push_back(entry);
      }
      evidence_.emplace_back(requests.size());
    }
    model_.begins.push_back(begin);
  }

  void AlignSegments() {
    const Cycle& cycle = model_.cycle;
    std::vector<Sequence> templates;
    for (std::uint32_t c = 0; c < cycle.period; ++c) {
      templates.push_back(MakeSequence(device_, SegmentOf(cycle.warmup + c)));
    }
    model_.alignments.resize(device_.segments.size());
    for (std::uint32_t segment = cycle.warmup == 0 ? 0 : 1; segment < device_.segments.size(); ++segment) {
      const std::uint32_t script = cycle.ScriptOf(segment + cycle.period - 1);
      if (segment >= SegmentOf(cycle.warmup) && segment < SegmentOf(cycle.warmup + cycle.period)) {
        model_.alignments[segment].emplace(static_cast<std::uint32_t>(templates[script].keys.size()));
      } else {
        const Sequence sequence = MakeSequence(device_, segment);
        const auto whole = static_cast<std::uint32_t>(sequence.keys.size());
        const std::uint32_t compared = segment == 0 ? whole : cycle.compared[segment - 1];
        model_.alignments[segment].emplace(Align(templates[script], sequence, compared));
      }
    }
  }

  // Whose requests and frees can be distinguished. What was broken off may be none of the loop's iterations: where they
  // end with the optimizer's steps, an evaluation after the last step looks like the beginning of one more.
  [[nodiscard]] bool IsTrusted(std::uint32_t iteration) const { return model_.cycle.typical[iteration]; }

  void TakeIteration(std::uint32_t iteration) {
    if (!IsTrusted(iteration)) return;
    const std::uint32_t script = model_.cycle.ScriptOf(iteration);
    const Alignment& alignment = *model_.alignments[SegmentOf(iteration)];
    for (std::uint32_t e = 0; e < model_.scripts[script].size(); ++e) {
      Evidence& evidence = evidence_[script][e];
      ++evidence.compared;
      const std::uint32_t ordinal = alignment.ToRight(e);
      if (ordinal == kNone) continue;
      const Allocation& allocation = device_.Request(SegmentOf(iteration), ordinal);
      ++evidence.found;
      TakeSize(model_.scripts[script][e], allocation);
      TakeEnd(evidence, iteration, allocation);
    }
  }

  void TakeSize(CycleEntry& entry, const Allocation& allocation) {
    entry.min_bytes = std::min(entry.min_bytes, allocation.bytes);
    entry.max_bytes = std::max(entry.max_bytes, allocation.bytes);
    if (entry.unplanned == Unplanned::kPlanned) {
      entry.unplanned = StreamObstacle(allocation, model_);
    }
  }

  // At the end of the process everything goes, in whatever order: that shows only that a block lived until then.
  void TakeEnd(Evidence& evidence, std::uint32_t iteration, const Allocation& allocation) {
    const std::uint32_t last = model_.cycle.traced - 1;
    const auto last_requests = static_cast<std::uint32_t>(device_.segments.back().allocations.size());
    const bool at_exit =
        allocation.freed() && allocation.free_segment == SegmentOf(last) && allocation.free_ordinal == last_requests;
    if (!allocation.freed() || at_exit) {
      const Tick seen =
          model_.cycle.broken_off() ? model_.BeginOf(iteration, last) : model_.Reached(iteration, last, last_requests);
      evidence.alive_until = std::max(evidence.alive_until, seen);
      return;
    }
    const std::uint32_t at = allocation.free_segment - 1;
    const Tick end = model_.Position(iteration, at, allocation.free_ordinal);
    if (IsTrusted(at)) {
      evidence.end = std::max(evidence.end.value_or(end), end);
    } else {
      evidence.doubtful_end = std::max(evidence.doubtful_end.value_or(end), end);
      evidence.alive_until = std::max(evidence.alive_until, model_.BeginOf(iteration, at));
    }
  }

  // With nothing else to compare the template with, warm-up shows which sizes vary, and when blocks end that cross
  // over.
  void TakeWarmup() {
    const Cycle& cycle = model_.cycle;
    for (std::uint32_t iteration = 0; iteration < cycle.warmup; ++iteration) {
      const std::uint32_t script = cycle.ScriptOf(iteration);
      const Alignment& alignment = *model_.alignments[SegmentOf(iteration)];
      for (std::uint32_t e = 0; e < model_.scripts[script].size(); ++e) {
        if (const std::uint32_t ordinal = alignment.ToRight(e); ordinal != kNone) {
          const Allocation& allocation = device_.Request(SegmentOf(iteration), ordinal);
          TakeSize(model_.scripts[script][e], allocation);
          if (Evidence& evidence = evidence_[script][e]; allocation.freed() && !evidence.end.has_value()) {
            TakeEnd(evidence, iteration, allocation);
          }
        }
      }
    }
  }

  void Conclude() {
    for (std::uint32_t c = 0; c < model_.scripts.size(); ++c) {
      for (std::uint32_t e = 0; e < model_.scripts[c].size(); ++e) {
        ConcludeEntry(model_.scripts[c][e], evidence_[c][e]);
      }
    }
  }

  void ConcludeEntry(CycleEntry& entry, const Evidence& evidence) {
    const std::optional<Tick> end = evidence.end.has_value() ? evidence.end : evidence.doubtful_end;
    entry.resident = !end.has_value();
    entry.end = std::max({end.value_or(0), evidence.alive_until, entry.begin + 1});
    const bool varies = entry.min_bytes != entry.max_bytes;
    const bool optional = evidence.found < evidence.compared;
    if (varies) {
      entry.entry_class = EntryClass::kDynamic;
    } else if (entry.resident) {
      entry.entry_class = EntryClass::kPersistent;
    } else if (optional) {
      entry.entry_class = EntryClass::kOptional;
    }
    if (entry.unplanned == Unplanned::kPlanned && (varies || (optional && !entry.resident))) {
      entry.unplanned = varies ? Unplanned::kDynamic : Unplanned::kOptional;
    }
  }

  const DeviceTrace& device_;
  SteadyModel model_;
  std::vector<std::vector<Evidence>> evidence_;
};

}  // namespace

const char* UnplannedName(Unplanned reason) {
  switch (reason) {
    case Unplanned::kPlanned:
      return "planned";
    case Unplanned::kDynamic:
      return "size varies";
    case Unplanned::kOptional:
      return "not in every iteration";
    case Unplanned::kUnordered:
      return "order varies";
    case Unplanned::kOtherStream:
      return "other stream";
    case Unplanned::kRecorded:
      return "recorded on another stream";
    case Unplanned::kLongLived:
      return "outlives the cycle";
    case Unplanned::kCount:
      break;
  }
  return "?";
}

Tick SteadyModel::Position(std::uint32_t iteration, std::uint32_t at, std::uint32_t ordinal) const {
  return BeginOf(iteration, at) + alignments[at + 1]->LeftBound(ordinal);
}

Tick SteadyModel::Reached(std::uint32_t iteration, std::uint32_t at, std::uint32_t ordinal) const {
  return BeginOf(iteration, at) + alignments[at + 1]->LeftReached(ordinal);
}

const CycleEntry* SteadyModel::EntryOf(std::uint32_t segment, std::uint32_t ordinal) const {
  const std::uint32_t entry = alignments[segment].has_value() ? alignments[segment]->ToLeft(ordinal) : kNone;
  return entry == kNone ? nullptr : &scripts[cycle.ScriptOf(segment + cycle.period - 1)][entry];
}

Tick SteadyModel::BeginOf(std::uint32_t iteration, std::uint32_t at) const {
  const std::uint32_t script = cycle.ScriptOf(iteration) + (at - iteration);
  return script / cycle.period * length() + begins[script % cycle.period];
}

std::uint32_t MainStream(const DeviceTrace& device) {
  std::map<std::uint32_t, Bytes> bytes;
  for (const Allocation& allocation : device.allocations) {
    bytes[allocation.stream] += allocation.bytes;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? 0 : most->first;
}

bool HasVarying(const SteadyModel& model) {
  return std::any_of(model.scripts.begin(), model.scripts.end(), [](const std::vector<CycleEntry>& script) {
    return std::any_of(script.begin(), script.end(), [](const CycleEntry& entry) {
      return entry.unplanned == Unplanned::kDynamic || entry.unplanned == Unplanned::kOptional;
    });
  });
}

Unplanned StreamObstacle(const Allocation& allocation, const SteadyModel& model) {
  if (model.all_streams) return Unplanned::kPlanned;
  if (allocation.stream != model.main_stream) return Unplanned::kOtherStream;
  return allocation.foreign_stream ? Unplanned::kRecorded : Unplanned::kPlanned;
}

SteadyModel CompareIterations(const DeviceTrace& device, const Cycle& cycle, bool all_streams) {
  SteadyModel model = Comparer(device, cycle, all_streams).Compare();
  model.small_bytes = SmallBlockBytes(PeakLiveBytes(device));
  return model;
}

SteadyModel WithoutIteration(const DeviceTrace& device, const SteadyModel& model, std::uint32_t iteration) {
  Cycle cycle = model.cycle;
  cycle.typical[iteration] = false;
  SteadyModel without = Comparer(device, model, cycle).Compare();
  without.small_bytes = model.small_bytes;
  without.passes = model.passes;
  return without;
}

std::vector<const Alignment*> WholeAlignments(const DeviceTrace& device, const SteadyModel& model) {
  std::vector<const Alignment*> whole(device.segments.size());
  for (std::size_t segment = 1; segment < whole.size(); ++segment) {
    const bool is_whole = model.cycle.compared[segment - 1] >= device.segments[segment].allocations.size();
    if (is_whole && model.alignments[segment].has_value()) whole[segment] = &*model.alignments[segment];
  }
  return whole;
}

}  // namespace stalloc::planner
