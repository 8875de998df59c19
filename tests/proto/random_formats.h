// Random traces and plans that obey every rule of the formats; the same seed gives the same value.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc {

inline bool operator==(const Slot& a, const Slot& b) { return a.offset == b.offset && a.capacity == b.capacity; }
inline bool operator==(const Entry& a, const Entry& b) {
  return a.bytes == b.bytes && a.min_bytes == b.min_bytes && a.max_bytes == b.max_bytes && a.stream == b.stream &&
         a.slot == b.slot && a.entry_class == b.entry_class && a.expected_life == b.expected_life &&
         a.lent_slot == b.lent_slot;
}
inline bool operator==(const LentPool& a, const LentPool& b) {
  return a.number == b.number && a.requests == b.requests && a.layout == b.layout && a.bytes == b.bytes &&
         a.first_pieces == b.first_pieces && a.own == b.own;
}
inline bool operator==(const Phase& a, const Phase& b) { return a.mark == b.mark && a.first_entry == b.first_entry; }
inline bool operator==(const Script& a, const Script& b) { return a.phases == b.phases && a.entries == b.entries; }
inline bool operator==(const StreamEdge& a, const StreamEdge& b) {
  return a.from_slot == b.from_slot && a.to_slot == b.to_slot && a.from_stream == b.from_stream &&
         a.to_stream == b.to_stream;
}
inline bool operator==(const Predicted& a, const Predicted& b) {
  return a.peak_live_bytes == b.peak_live_bytes && a.planned_peak_bytes == b.planned_peak_bytes &&
         a.upstream_peak_bytes == b.upstream_peak_bytes && a.lower_bound_bytes == b.lower_bound_bytes &&
         a.efficiency == b.efficiency && a.expandable_bytes == b.expandable_bytes;
}
inline bool operator==(const DevicePlan& a, const DevicePlan& b) {
  return a.device == b.device && a.arena_bytes == b.arena_bytes && a.slots == b.slots && a.prologue == b.prologue &&
         a.cycle == b.cycle && a.stream_edges == b.stream_edges && a.streams == b.streams &&
         a.predicted == b.predicted && a.kept == b.kept && a.turns == b.turns && a.lent_pools == b.lent_pools &&
         a.lent_slots == b.lent_slots;
}
inline bool operator==(const Plan& a, const Plan& b) {
  return a.fingerprint == b.fingerprint && a.devices == b.devices && a.planner_version == b.planner_version &&
         a.solver == b.solver;
}

class RandomFormats {
 public:
  explicit RandomFormats(std::uint64_t seed) : random_(seed) {}

  // Numbers of all magnitudes, so that varints of all lengths occur.
  std::uint64_t Number() { return random_() >> (random_() % 64); }
  std::uint64_t Below(std::uint64_t limit) { return random_() % limit; }
  std::string Word() {
    static const char* const kWords[] = {"", "pretrain.py", "--lr=1e-4", "größe", "層", "a b\nc", "nul\x01"};
    return kWords[Below(std::size(kWords))];
  }

  Fingerprint MakeFingerprint() {
    Fingerprint fingerprint;
    fingerprint.torch_version = "2.11.0+cu130";
    fingerprint.device_name = Word();
    fingerprint.device_bytes = Number();
    fingerprint.driver_version = Word();
    fingerprint.world_size = static_cast<std::uint32_t>(Number());
    fingerprint.rank = static_cast<std::uint32_t>(Number());
    fingerprint.local_rank = static_cast<std::uint32_t>(Below(8));
    for (std::uint64_t i = Below(4); i > 0; --i) fingerprint.command_line.push_back(Word());
    fingerprint.stalloc_version = "0.1.0";
    fingerprint.trace_mode = Word();
    return fingerprint;
  }

  Mark MakeMark() {
    Mark mark;
    mark.kind = static_cast<MarkKind>(1 + Below(6));
    mark.edge = static_cast<MarkEdge>(1 + Below(2));
    mark.pass = static_cast<Pass>(Below(6));
    mark.chunk = static_cast<std::int32_t>(Below(7)) - 3;
    mark.index = static_cast<std::int32_t>(Number());
    mark.name = Word();
    mark.automatic = Below(2) == 1;
    return mark;
  }

  Trace MakeTrace(std::size_t events) {
    Trace trace;
    trace.fingerprint = MakeFingerprint();
    trace.complete = true;
    trace.live_before = Below(3);
    std::vector<std::uint64_t> live;
    AddCalls(&trace, events / 4);
    for (std::size_t i = 0; i < events; ++i) trace.events.push_back(MakeEvent(&trace, &live));
    for (std::size_t i = 0; trace.allocations > 0 && i < events / 3; ++i) trace.tensors.push_back(MakeTensor(trace));
    for (std::size_t i = 0; trace.allocations > 0 && i < events / 5; ++i) {
      trace.layer_inputs.push_back(
          {Below(trace.allocations), Below(events), static_cast<std::uint32_t>(Below(trace.texts.size()))});
    }
    return trace;
  }

  Plan MakePlan() {
    Plan plan;
    plan.fingerprint = MakeFingerprint();
    for (int device = kCpuDevice; device < static_cast<int>(Below(3)); ++device)
      plan.devices.push_back(MakeDevice(device));
    plan.planner_version = Word();
    plan.solver = Word();
    return plan;
  }

 private:
  void AddCalls(Trace* trace, std::size_t count) {
    trace->texts = {Word(), "model.py", "größe"};
    for (std::size_t i = 0; i < count; ++i) {
      trace->calls.push_back({.parent_plus_one = static_cast<std::uint32_t>(Below(i + 1)),
                              .function = static_cast<std::uint32_t>(Below(3)),
                              .file = static_cast<std::uint32_t>(Below(3)),
                              .line = static_cast<std::uint32_t>(Number())});
    }
  }

  NamedTensor MakeTensor(const Trace& trace) {
    return {.allocation = Below(trace.allocations),
            .offset = Number(),
            .bytes = Number(),
            .name = static_cast<std::uint32_t>(Below(trace.texts.size())),
            .role = static_cast<TensorRole>(1 + Below(4))};
  }

  TraceEvent MakeEvent(Trace* trace, std::vector<std::uint64_t>* live) {
    TraceEvent event;
    event.kind = static_cast<EventKind>(1 + Below(5));
    const bool needs_live = event.kind == EventKind::kFree || event.kind == EventKind::kRecordStream;
    if (needs_live && live->empty()) event.kind = EventKind::kAlloc;
    event.thread = static_cast<std::uint32_t>(Below(3));
    event.flags = static_cast<std::uint32_t>(Below(2));
    if (!trace->events.empty()) {  // threads' clocks interleave: small steps back occur
      event.time_ns = trace->events.back().time_ns + static_cast<std::int64_t>(Below(100'000)) - 500;
    }
    const std::size_t pick = live->empty() ? 0 : Below(live->size());
    switch (event.kind) {
      case EventKind::kAlloc:
        event.device = static_cast<DeviceIndex>(Below(3)) - 1;
        event.bytes = Number();
        event.allocation = trace->allocations++;
        event.stream = MakeStream(trace);
        if (event.flags == kAllocCaptured && Below(3) != 0) event.address = Number();
        event.stack_plus_one = static_cast<std::uint32_t>(Below(trace->calls.size() + 1));
        live->push_back(event.allocation);
        break;
      case EventKind::kFree:
        event.allocation = (*live)[pick];
        live->erase(live->begin() + static_cast<std::ptrdiff_t>(pick));
        break;
      case EventKind::kRecordStream:
        event.allocation = (*live)[pick];
        event.stream = MakeStream(trace);
        break;
      case EventKind::kMark:
        event.mark = static_cast<std::uint32_t>(trace->marks.size());
        trace->marks.push_back(MakeMark());
        break;
      case EventKind::kHeld:
        event.device = 0;
        event.bytes = Number();
        break;
    }
    return event;
  }

  std::uint32_t MakeStream(Trace* trace) {
    const auto ordinal = static_cast<std::uint32_t>(Below(trace->streams.size() + 1));
    if (ordinal == trace->streams.size()) {
      trace->streams.push_back({.ordinal = ordinal, .device = static_cast<DeviceIndex>(Below(2)), .handle = Number()});
    }
    return ordinal;
  }

  Bytes Aligned(std::uint64_t limit) { return (1 + Below(limit)) * kBlockAlignment; }

  DevicePlan MakeDevice(DeviceIndex index) {
    DevicePlan device;
    device.device = index;
    device.arena_bytes = Bytes{1} << 40;
    for (std::uint32_t i = 0; i < 2; ++i) device.streams.push_back({.ordinal = i, .device = index, .handle = Number()});
    const std::uint64_t slots = 1 + Below(20);
    for (std::uint64_t i = 0; i < slots; ++i) {
      device.slots.push_back({.offset = Aligned(1u << 20), .capacity = Aligned(1u << 20)});
    }
    for (std::uint32_t i = static_cast<std::uint32_t>(Below(3)); i > 0; --i) {
      const auto requests = static_cast<std::uint32_t>(1 + Below(1u << 20));
      LentPool& pool = device.lent_pools.emplace_back();
      pool = {.number = i, .requests = requests, .layout = Number(), .bytes = Bytes{4} << 30};
      for (std::uint32_t piece = 0; piece < 200; piece += 1 + static_cast<std::uint32_t>(Below(100))) {
        pool.first_pieces.push_back(piece);
      }
      for (Offset at = 0; Below(2) == 0 && at <= Bytes{4} << 30;) {
        const Bytes own = (1 + Below(1u << 9)) * LentPool::kOwnUnit;
        pool.own.push_back({at, own});
        at += own + Below(1u << 9) * LentPool::kOwnUnit;
      }
    }
    for (std::uint64_t i = device.lent_pools.empty() ? 0 : Below(20); i > 0; --i) {
      device.lent_slots.push_back({.offset = Aligned(1u << 20), .capacity = Aligned(1u << 20)});
    }
    for (std::uint64_t i = Below(3); i > 0; --i) device.prologue.push_back(MakeScript(device));
    for (std::uint64_t i = 1 + Below(2); i > 0; --i) device.cycle.push_back(MakeScript(device));
    if (Below(3) == 0) {
      device.turns = 2;
      const std::vector<Script> again = device.cycle;
      device.cycle.insert(device.cycle.end(), again.begin(), again.end());
    }
    if (Below(2) == 0) {
      device.kept = MakeScript(device);
      device.kept.phases.clear();
      for (Entry& entry : device.kept.entries) entry.lent_slot = kNoSlot;
    }
    for (std::uint64_t i = Below(3); i > 0; --i) {
      device.stream_edges.push_back({.from_slot = static_cast<std::uint32_t>(Below(slots)),
                                     .to_slot = static_cast<std::uint32_t>(Below(slots)),
                                     .from_stream = 0,
                                     .to_stream = 1});
    }
    device.predicted = {.peak_live_bytes = Number(),
                        .planned_peak_bytes = Number(),
                        .upstream_peak_bytes = Number(),
                        .lower_bound_bytes = Number(),
                        .efficiency = 0.875,
                        .expandable_bytes = Number()};
    return device;
  }

  Script MakeScript(const DevicePlan& device) {
    Script script;
    const std::uint64_t entries = Below(40);
    for (std::uint64_t i = 0; i < entries; ++i) {
      Entry entry;
      if (Below(4) != 0) entry.slot = static_cast<std::uint32_t>(Below(device.slots.size()));
      if (entry.slot == kNoSlot && !device.lent_slots.empty() && Below(2) == 0) {
        entry.lent_slot = static_cast<std::uint32_t>(Below(device.lent_slots.size()));
      }
      entry.bytes = entry.slot != kNoSlot        ? device.slots[entry.slot].capacity
                    : entry.lent_slot != kNoSlot ? device.lent_slots[entry.lent_slot].capacity
                                                 : Aligned(1u << 20);
      entry.min_bytes = entry.bytes - Below(entry.bytes / kBlockAlignment) * kBlockAlignment;
      entry.max_bytes = entry.bytes + Below(100) * kBlockAlignment;
      entry.stream = static_cast<std::uint32_t>(Below(2));
      entry.entry_class = static_cast<EntryClass>(1 + Below(4));
      entry.expected_life = Number();
      script.entries.push_back(entry);
    }
    std::uint32_t first = 0;
    for (std::uint64_t i = Below(5); i > 0; --i) {
      first += static_cast<std::uint32_t>(Below(entries - first + 1));
      script.phases.push_back({.mark = MakeMark(), .first_entry = first});
    }
    return script;
  }

  std::mt19937_64 random_;
};

}  // namespace stalloc
