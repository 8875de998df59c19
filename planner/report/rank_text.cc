#include "planner/report/rank_text.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/report/quantities.h"
#include "planner/report/text_table.h"

namespace stalloc::planner {
namespace {

std::string Name(DeviceIndex device) { return device == kCpuDevice ? "cpu" : absl::StrCat("device ", device); }

std::string SegmentName(const std::vector<SegmentReport>& segments, std::size_t segment) {
  return segment == 0 ? "set-up" : absl::StrCat("iteration ", segments[segment].index);
}

std::string Share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? "-" : absl::StrFormat("%.2f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string PeakText(const DeviceReport& device) {
  const PeakReport& peak = device.peak;
  std::string text = absl::StrCat("theoretical peak: ", FormatBytes(peak.live_bytes), " live, in ",
                                  SegmentName(device.segments, peak.segment),
                                  peak.fenced ? " inside a fence" : absl::StrCat(" at request ", peak.ordinal), "\n\n");
  TextTable table({"at the peak", "bytes", "share"});
  for (std::size_t i = 0; i < peak.by_class.size(); ++i) {
    if (peak.by_class[i] > 0) {
      table.AddRow({PeakClassName(static_cast<PeakClass>(i)), FormatBytes(peak.by_class[i]),
                    Share(peak.by_class[i], peak.live_bytes)});
    }
  }
  return text + table.Render();
}

std::string SegmentsText(const DeviceReport& device) {
  TextTable table(
      {"segment", "requests", "bytes asked for", "peak live", "compared", "hits", "taken", "unplanned", "unknown"});
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
  TextTable table({"stream", "handle", "requests", "bytes asked for", "used by others", "arena"});
  for (const StreamReport& stream : device.streams) {
    table.AddRow({absl::StrCat(stream.stream.ordinal), absl::StrFormat("0x%x", stream.stream.handle),
                  absl::StrCat(stream.requests), FormatBytes(stream.bytes), absl::StrCat(stream.recorded),
                  stream.main ? "yes" : "no"});
  }
  return table.Render();
}

std::string CycleText(const PackingReport& packing) {
  TextTable table({"requests of the cycle", "number", "bytes asked for"});
  for (std::size_t i = 0; i < packing.cycle.size(); ++i) {
    if (packing.cycle[i].requests > 0) {
      table.AddRow({UnplannedName(static_cast<Unplanned>(i)), absl::StrCat(packing.cycle[i].requests),
                    FormatBytes(packing.cycle[i].bytes)});
    }
  }
  return table.Render();
}

std::string PackingText(const PackingReport& packing) {
  std::string text =
      absl::StrCat("arena:            ", FormatBytes(packing.arena_bytes), " for ", packing.blocks, " blocks\n",  //
                   "lower bound:      ", FormatBytes(packing.lower_bound_bytes), "\n");
  absl::StrAppendFormat(&text, "ratio:            %.5f (%s, %s)\n", packing.ratio(), packing.solver,
                        FormatSeconds(packing.seconds));
  absl::StrAppendFormat(&text, "idle space:       %.1f %% scattered; %d rectangles in the plan are %.1f %% of it\n",
                        100.0 * packing.scatter, packing.idle_rectangles, 100.0 * packing.idle_coverage);
  for (const StreamPair& pair : packing.hand_overs) {
    absl::StrAppend(&text, "waits:            ", pair.hand_overs, " hand-overs from stream ", pair.from_stream, " to ",
                    pair.to_stream, ", ", FormatBytes(pair.bytes), "\n");
  }
  absl::StrAppend(&text, "upstream:         ", FormatBytes(packing.predicted.upstream_peak_bytes), " at most\n",
                  "predicted E:      ", FormatShare(packing.predicted.efficiency), "\n",  //
                  "warm-up:          ", packing.warmup, " iterations; then a period of ", packing.period,
                  packing.copies > 1 ? absl::StrCat(", unrolled ", packing.copies, " times") : "", "\n\n",
                  CycleText(packing));
  return text;
}

std::string DeviceText(const DeviceReport& device) {
  std::string text = absl::StrCat("== ", Name(device.device), " ==\n", PeakText(device), "\n");
  if (device.held_peak_bytes > 0) {
    absl::StrAppend(
        &text, "held when traced: ", FormatBytes(device.held_peak_bytes), ", E ",
        device.traced_efficiency() == 0 ? "unknown (seen at marks only)" : FormatShare(device.traced_efficiency()),
        "\n");
  }
  if (device.packing.has_value()) {
    absl::StrAppend(&text, PackingText(*device.packing), "\n");
  }
  absl::StrAppend(&text, SegmentsText(device), "\n", StreamsText(device));
  for (const std::string& warning : device.warnings) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  return text;
}

}  // namespace

std::string RankText(const RankReport& report) {
  const Fingerprint& fingerprint = report.fingerprint;
  std::string text =
      absl::StrFormat("rank %d of %d, %s, torch %s, %d events%s\n", fingerprint.rank, fingerprint.world_size,
                      fingerprint.device_name.empty() ? "device unknown" : fingerprint.device_name,
                      fingerprint.torch_version.empty() ? "unknown" : fingerprint.torch_version, report.events,
                      report.trace_complete ? "" : ", not ended in order");
  if (!fingerprint.command_line.empty()) {
    absl::StrAppend(&text, "command: ", absl::StrJoin(fingerprint.command_line, " "), "\n");
  }
  for (const std::string& warning : report.warnings) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  for (const std::string& note : report.notes) {
    absl::StrAppend(&text, "note: ", note, "\n");
  }
  for (const DeviceReport& device : report.devices) {
    absl::StrAppend(&text, "\n", DeviceText(device));
  }
  return text;
}

}  // namespace stalloc::planner
