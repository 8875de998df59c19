#include "planner/report/run_summary.h"

#include <cstddef>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/report/json_writer.h"
#include "planner/report/quantities.h"
#include "planner/report/rank_json.h"
#include "planner/report/text_table.h"
#include "planner/report/worth_text.h"
#include "planner/report/wrap_text.h"

namespace stalloc::planner {
namespace {

// For the template, or of the last iteration where none was chosen.
std::string RequestsPerIteration(const DeviceReport& device) {
  if (device.segments.size() < 2) return "-";
  for (const SegmentReport& segment : device.segments) {
    if (segment.stability == Stability::kTemplate) return absl::StrCat(segment.requests);
  }
  return absl::StrCat(device.segments.back().requests);
}

void AddDevice(const RankOutcome& outcome, const DeviceReport& device, TextTable* table) {
  const std::string rank = absl::StrCat(outcome.rank);
  const std::string name = device.device == kCpuDevice ? "cpu" : absl::StrCat(device.device);
  if (!device.packing.has_value()) {
    const std::optional<ForecastReport>& forecast = device.forecast;
    table->AddRow({rank, name, RequestsPerIteration(device), FormatBytes(device.peak.live_bytes), "-",
                   forecast ? FormatBytes(forecast->arena_bytes) : "-", "-",
                   forecast ? absl::StrCat("<= ", FormatShare(device.EfficiencyAt(forecast->held_bytes))) : "-",
                   FormatShare(device.traced_efficiency()), FormatSeconds(outcome.seconds)});
    return;
  }
  const PackingReport& packing = *device.packing;
  table->AddRow({rank, name, RequestsPerIteration(device), FormatBytes(device.peak.live_bytes),
                 FormatBytes(packing.arena_bytes), FormatBytes(packing.lower_bound_bytes),
                 absl::StrFormat("%.4f", packing.ratio()), FormatShare(packing.predicted.efficiency),
                 FormatShare(device.traced_efficiency()), FormatSeconds(outcome.seconds)});
}

// For each rank that others are equal to, a line.
std::string EqualRanksText(const std::vector<RankOutcome>& outcomes) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> equal;
  for (const RankOutcome& outcome : outcomes) {
    if (!outcome.report.has_value() || !outcome.report->equal_to_rank.has_value()) continue;
    equal[*outcome.report->equal_to_rank].push_back(outcome.rank);
  }
  std::string text;
  for (const auto& [rank, others] : equal) {
    absl::StrAppend(&text, "equal to rank ", rank, ": ", RanksText(others), " (", others.size(), ")\n");
  }
  return text;
}

// For the rank and device that needs most.
std::string WorthOfMost(const std::vector<RankOutcome>& outcomes) {
  const RankReport* of_rank = nullptr;
  const DeviceReport* most = nullptr;
  for (const RankOutcome& outcome : outcomes) {
    if (!outcome.report.has_value()) continue;
    for (const DeviceReport& device : outcome.report->devices) {
      if (most != nullptr && device.peak.live_bytes <= most->peak.live_bytes) continue;
      of_rank = &*outcome.report;
      most = &device;
    }
  }
  if (most == nullptr) return {};
  const std::string worth = WorthText(*most, nullptr, of_rank->fingerprint.device_bytes);
  if (worth.empty()) return {};
  const std::string rank = outcomes.size() > 1 ? absl::StrCat("rank ", of_rank->fingerprint.rank, ": ") : "";
  return absl::StrCat(WrapText(rank + worth), "\n");
}

}  // namespace

std::string RanksText(const std::vector<std::uint32_t>& ranks) {
  constexpr std::size_t kFewestInSteps = 4;
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    const std::uint32_t step = begin + 1 < ranks.size() ? ranks[begin + 1] - ranks[begin] : 0;
    for (end = begin + 1; end < ranks.size() && ranks[end] - ranks[end - 1] == step;) ++end;
    if (step > 1 && end - begin < kFewestInSteps) end = begin + 1;
    absl::StrAppend(&text, text.empty() ? "" : ", ", ranks[begin]);
    if (end - begin > 1) absl::StrAppend(&text, end - begin > 2 ? "-" : ", ", ranks[end - 1]);
    if (end - begin > 1 && step > 1) absl::StrAppend(&text, " by ", step);
  }
  return text;
}

std::string SummaryTable(const std::vector<RankOutcome>& outcomes) {
  TextTable table({"rank", "device", "requests/iteration", "peak live", "arena", "lower bound", "ratio", "predicted E",
                   "traced E", "time"});
  for (const RankOutcome& outcome : outcomes) {
    if (!outcome.report.has_value()) {
      table.AddRow(
          {absl::StrCat(outcome.rank), "failed", "-", "-", "-", "-", "-", "-", "-", FormatSeconds(outcome.seconds)});
      continue;
    }
    if (outcome.report->equal_to_rank.has_value()) continue;
    for (const DeviceReport& device : outcome.report->devices) AddDevice(outcome, device, &table);
  }
  return WorthOfMost(outcomes) + table.Render() + EqualRanksText(outcomes);
}

std::string SummaryJson(const std::vector<RankOutcome>& outcomes) {
  JsonWriter json;
  bool ok = true;
  json.BeginObject();
  json.Objects("ranks", outcomes, [&](const RankOutcome& outcome) {
    ok = ok && outcome.error.empty();
    json.Key("rank").Value(outcome.rank);
    json.Key("ok").Value(outcome.error.empty());
    json.Key("error").Value(outcome.error);
    json.Key("plan").Value(outcome.plan_path);
    json.Key("seconds").Value(outcome.seconds);
    json.ObjectOrNull("report", outcome.report, [&](const RankReport& report) { WriteRankJson(report, &json); });
  });
  json.Key("ok").Value(ok).EndObject();
  return json.Take();
}

}  // namespace stalloc::planner
