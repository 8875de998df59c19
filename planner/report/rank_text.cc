#include "planner/report/rank_text.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/report/quantities.h"
#include "planner/report/text_table.h"
#include "planner/report/worth_text.h"
#include "planner/report/wrap_text.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kRows = 20;  // of a table that might be long

std::string Name(DeviceIndex device) { return device == kCpuDevice ? "cpu" : absl::StrCat("device ", device); }

std::string SegmentName(const std::vector<SegmentReport>& segments, std::size_t segment) {
  return segment == 0 ? "set-up" : absl::StrCat("iteration ", segments[segment].index);
}

std::string Share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? "-" : absl::StrFormat("%.2f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string PeakText(const DeviceReport& device) {
  const PeakReport& peak = device.peak;
  const std::string place = peak.fenced ? " inside a fence" : absl::StrCat(" at request ", peak.ordinal);
  std::string text = absl::StrCat("theoretical peak: ", FormatBytes(peak.live_bytes), " live, in ",
                                  SegmentName(device.segments, peak.segment), place, "\n\n");
  TextTable table({"at the peak", "bytes", "share"});
  for (std::size_t i = 0; i < peak.by_memory_class.size(); ++i) {
    const Bytes bytes = peak.by_memory_class[i];
    if (bytes > 0) {
      table.AddRow({MemoryClassName(static_cast<MemoryClass>(i)), FormatBytes(bytes), Share(bytes, peak.live_bytes)});
    }
  }
  return text + table.Render();
}

// What E leaves out of captured graphs.
std::string GraphsText(const DeviceReport& device) {
  if (!device.graphs.has_value()) return "";
  const GraphNeeds& needs = *device.graphs;
  std::string text = absl::StrCat("\ncaptured graphs: the device needs ", FormatBytes(needs.peak),
                                  " at most, of which PyTorch counts ", FormatBytes(needs.torch_then),
                                  " as live; the rest is what a launch writes or leaves to a later one\n");
  if (device.packing.has_value() && device.packing->lent_requests > 0) {
    absl::StrAppend(&text, "  of their pools ", FormatBytes(device.packing->lent_bytes),
                    " serve eager requests between launches (", device.packing->lent_requests,
                    device.packing->lent_requests == 1 ? " request)\n" : " requests)\n");
  }
  const double efficiency = device.traced_device_efficiency();
  return efficiency == 0 ? text : absl::StrCat(text, "E of the device when traced: ", FormatShare(efficiency), "\n");
}

// A line for each allocator that might have served the run.
std::string HeldText(const DeviceReport& device) {
  TextTable table({"held on the device", "bytes", "E"});
  if (device.held_peak_bytes > 0) {
    table.AddRow({"when traced", FormatBytes(device.held_peak_bytes),
                  device.traced_efficiency() == 0 ? "seen at marks only" : FormatShare(device.traced_efficiency())});
  }
  const auto simulated = [&](const char* name, Bytes bytes) {
    table.AddRow({name, FormatBytes(bytes), FormatShare(device.EfficiencyAt(bytes))});
  };
  simulated("native, simulated", device.simulated.native_bytes);
  simulated("expandable_segments, simulated", device.simulated.expandable_bytes);
  if (device.packing.has_value()) {
    table.AddRow({"with this plan, predicted", FormatBytes(device.packing->held_bytes),
                  FormatShare(device.packing->predicted.efficiency)});
  }
  if (device.forecast.has_value()) {
    table.AddRow({"with a plan, at best", FormatBytes(device.forecast->held_bytes),
                  FormatShare(device.EfficiencyAt(device.forecast->held_bytes))});
  }
  return table.Render() + GraphsText(device);
}

// For an allocation that repeats in every layer one line is enough.
bool LooksLike(const PeakBlock& left, const PeakBlock& right) {
  return left.bytes == right.bytes && left.memory_class == right.memory_class &&
         left.allocated_in == right.allocated_in && left.freed_in == right.freed_in;
}

std::string PeakBlocksText(const std::vector<PeakBlock>& blocks) {
  TextTable table({"largest", "n", "class", "allocated in", "freed in", "requests"});
  for (std::size_t i = 0; i < blocks.size();) {
    std::size_t end = i + 1;
    std::uint64_t shortest = blocks[i].life_requests;
    std::uint64_t longest = shortest;
    for (; end < blocks.size() && LooksLike(blocks[i], blocks[end]); ++end) {
      shortest = std::min(shortest, blocks[end].life_requests);
      longest = std::max(longest, blocks[end].life_requests);
    }
    const std::string life = shortest == longest ? absl::StrCat(longest) : absl::StrCat(shortest, "-", longest);
    table.AddRow({FormatBytes(blocks[i].bytes), absl::StrCat(end - i), MemoryClassName(blocks[i].memory_class),
                  blocks[i].allocated_in, blocks[i].freed_in.empty() ? "never" : blocks[i].freed_in, life});
    i = end;
  }
  return table.Render();
}

// The phases of the largest share, in the order of the run.
std::string PeakPhasesText(const PeakReport& peak) {
  std::vector<const PeakPhase*> largest;
  for (const PeakPhase& phase : peak.phases) largest.push_back(&phase);
  if (largest.size() > kRows) {
    std::vector<Bytes> bytes;
    for (const PeakPhase& phase : peak.phases) bytes.push_back(phase.bytes);
    std::nth_element(bytes.begin(), bytes.begin() + kRows, bytes.end(), std::greater<>());
    std::erase_if(largest, [least = bytes[kRows]](const PeakPhase* phase) { return phase->bytes <= least; });
  }
  TextTable table({"at the peak, allocated in", "blocks", "bytes", "share"});
  for (const PeakPhase* phase : largest) {
    table.AddRow(
        {phase->phase, absl::StrCat(phase->blocks), FormatBytes(phase->bytes), Share(phase->bytes, peak.live_bytes)});
  }
  return table.Render();
}

// Those of the iteration with the peak; all of them are in the JSON.
std::string PhasesText(const DeviceReport& device) {
  TextTable table({"phase", "live at its begin", "peak inside"});
  std::size_t rows = 0;
  std::size_t left_out = 0;
  for (const PhaseReport& phase : device.phases) {
    if (phase.segment != device.peak.segment) continue;
    if (++rows > 2 * kRows) {
      ++left_out;
      continue;
    }
    table.AddRow({phase.name, FormatBytes(phase.begin_live_bytes), FormatBytes(phase.peak_live_bytes)});
  }
  return absl::StrCat(table.Render(), left_out == 0 ? "" : absl::StrCat("and ", left_out, " more\n"));
}

std::string SegmentsText(const DeviceReport& device) {
  TextTable table(
      {"segment", "requests", "bytes requested", "peak live", "compared", "hits", "taken", "unplanned", "unknown"});
  for (std::size_t i = 0; i < device.segments.size(); ++i) {
    const SegmentReport& segment = device.segments[i];
    const SegmentReplay replay = segment.replay.value_or(SegmentReplay{});
    const auto count = [&](std::uint64_t value) { return segment.replay.has_value() ? absl::StrCat(value) : "-"; };
    table.AddRow({SegmentName(device.segments, i), absl::StrCat(segment.requests), FormatBytes(segment.requested_bytes),
                  FormatBytes(segment.peak_live_bytes), StabilityName(segment.stability),
                  segment.replay.has_value() ? Share(replay.hits, replay.requests) : "-", count(replay.occupied),
                  count(replay.unplanned), count(replay.unmatched)});
  }
  return table.Render();
}

std::string StreamsText(const DeviceReport& device) {
  TextTable table({"stream", "handle", "requests", "bytes requested", "used by others", "main"});
  for (const StreamReport& stream : device.streams) {
    table.AddRow({absl::StrCat(stream.stream.ordinal), absl::StrFormat("0x%x", stream.stream.handle),
                  absl::StrCat(stream.requests), FormatBytes(stream.bytes), absl::StrCat(stream.recorded),
                  stream.main ? "yes" : "no"});
  }
  return table.Render();
}

std::string CycleText(const PackingReport& packing) {
  TextTable table({"requests of the cycle", "number", "bytes requested"});
  for (std::size_t i = 0; i < packing.cycle.size(); ++i) {
    if (packing.cycle[i].requests > 0) {
      table.AddRow({UnplannedName(static_cast<Unplanned>(i)), absl::StrCat(packing.cycle[i].requests),
                    FormatBytes(packing.cycle[i].bytes)});
    }
  }
  return table.Render();
}

std::string TrialText(const TrialReport& trial) {
  TextTable table({"requests that vary, by trial", "planned", "arena", "upstream", "held", "E", ""});
  for (std::size_t i = 0; i < trial.candidates.size(); ++i) {
    const TrialOutcome& outcome = trial.candidates[i];
    std::string name = SlotPolicyName(outcome.choice.policy);
    if (outcome.choice.headroom > 0) absl::StrAppendFormat(&name, " + %.3g %%", 100 * outcome.choice.headroom);
    if (!outcome.served) {
      table.AddRow({name, absl::StrCat("at least ", FormatBytes(outcome.plan_bytes)), "-", "-", "-", "-", "not tried"});
      continue;
    }
    table.AddRow({name, FormatBytes(outcome.plan_bytes), FormatBytes(outcome.arena_bytes),
                  FormatBytes(outcome.upstream_bytes), FormatBytes(outcome.held_bytes()),
                  FormatShare(outcome.efficiency()), i == trial.taken ? "taken" : ""});
  }
  const std::string served =
      trial.held_out.empty()
          ? "too few iterations were traced to hold one out: the plan of all served all of them\n"
          : absl::StrCat("held out and served: iteration ", absl::StrJoin(trial.held_out, ", "), " (counted from 0)\n");
  return absl::StrCat(table.Render(), served);
}

// What living into the next iteration would cost.
std::string TurnsText(const PackingReport& packing) {
  if (packing.turns == 1) return "";
  return absl::StrCat("turns:            ", packing.turns, ", for ", packing.several_places,
                      " requests, which have a place for each; one place for all takes ",
                      FormatBytes(packing.one_place_bytes), "\n");
}

std::string PackingText(const PackingReport& packing) {
  std::string text =
      absl::StrCat("arena:            ", FormatBytes(packing.arena_bytes), " for ", packing.blocks, " blocks\n",  //
                   "lower bound:      ", FormatBytes(packing.lower_bound_bytes), " (proved)\n",
                   "packing:          ", DistanceText(packing.arena_bytes, packing.lower_bound_bytes), "\n");
  absl::StrAppendFormat(&text, "ratio:            %.5f (%s, %s)\n", packing.ratio(), packing.solver,
                        FormatSeconds(packing.seconds));
  absl::StrAppendFormat(&text, "idle space:       %.1f %% scattered\n", 100.0 * packing.scatter);
  for (const StreamPair& pair : packing.hand_overs) {
    absl::StrAppend(&text, "waits:            ", pair.hand_overs, " hand-overs from stream ", pair.from_stream, " to ",
                    pair.to_stream, ", ", FormatBytes(pair.bytes), "\n");
  }
  absl::StrAppend(&text, "upstream:         ", FormatBytes(packing.predicted.upstream_peak_bytes), " at most\n",
                  "predicted E:      ", FormatShare(packing.predicted.efficiency), "\n",  //
                  "warm-up:          ", packing.warmup, " iterations; then a period of ", packing.period,
                  packing.copies > 1 ? absl::StrCat(", unrolled ", packing.copies, " times") : "", "\n",
                  TurnsText(packing), "\n", CycleText(packing));
  if (packing.trial.has_value()) {
    absl::StrAppend(&text, "\n", TrialText(*packing.trial));
  }
  return text;
}

std::string DeviceText(const DeviceReport& device, Bytes card_bytes) {
  const std::string worth = WorthText(device, nullptr, card_bytes);
  std::string text = absl::StrCat("== ", Name(device.device), " ==\n", worth.empty() ? "" : WrapText(worth), "\n",
                                  PeakText(device), "\n", HeldText(device), "\n");
  if (device.packing.has_value()) {
    absl::StrAppend(&text, PackingText(*device.packing), "\n");
  }
  if (device.forecast.has_value()) {
    absl::StrAppend(&text, "arena:            at least ", FormatBytes(device.forecast->arena_bytes), "\n\n");
  }
  absl::StrAppend(&text, PeakBlocksText(device.peak.blocks), "\n", PeakPhasesText(device.peak), "\n",
                  PhasesText(device), "\n", SegmentsText(device), "\n", StreamsText(device));
  for (const std::string& note : device.notes) {
    absl::StrAppend(&text, WrapText(absl::StrCat("note: ", note)));
  }
  for (const std::string& warning : device.warnings) {
    absl::StrAppend(&text, WrapText(absl::StrCat("warning: ", warning)));
  }
  return text;
}

}  // namespace

std::string RankText(const RankReport& report) {
  const Fingerprint& fingerprint = report.fingerprint;
  const bool fake = fingerprint.trace_mode == "fake";
  const std::string where = !fingerprint.device_name.empty() ? fingerprint.device_name
                            : fake                           ? "no device"
                                                             : "device unknown";
  std::string text = WrapText(absl::StrFormat("rank %d of %d, %s%s, torch %s, %d events%s", fingerprint.rank,
                                              fingerprint.world_size, where, fake ? ", fake tensors" : "",
                                              fingerprint.torch_version.empty() ? "unknown" : fingerprint.torch_version,
                                              report.events, report.trace_complete ? "" : ", not ended in order"));
  if (!fingerprint.command_line.empty()) {
    absl::StrAppend(&text, WrapText(absl::StrCat("command: ", absl::StrJoin(fingerprint.command_line, " "))));
  }
  if (report.same_as_rank.has_value()) {
    absl::StrAppend(&text, "packing: same as rank ", *report.same_as_rank, "\n");
  }
  for (const std::string& warning : report.warnings) {
    absl::StrAppend(&text, WrapText(absl::StrCat("warning: ", warning)));
  }
  for (const std::string& note : report.notes) {
    absl::StrAppend(&text, WrapText(absl::StrCat("note: ", note)));
  }
  for (const DeviceReport& device : report.devices) {
    absl::StrAppend(&text, "\n", DeviceText(device, fingerprint.device_bytes));
  }
  return text;
}

}  // namespace stalloc::planner
