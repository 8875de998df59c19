#include "planner/cli/traced_steps.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/codec/json_object.h"

namespace stalloc::planner {
namespace {

namespace fs = std::filesystem;

std::string PathBeside(const std::string& trace, const char* suffix) {
  return fs::path(trace).replace_extension(suffix).string();
}

// Absent: there is no such file.
absl::StatusOr<std::optional<JsonObject>> ReadObject(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  absl::StatusOr<JsonObject> object = JsonObject::Parse(text);
  if (!object.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", object.status().message()));
  return std::optional<JsonObject>(*std::move(object));
}

absl::Status Expected(const std::string& path, const char* expected, const std::string& found) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": expected ", expected, ", found ", found.substr(0, 80)));
}

Load LoadOfTokens(std::vector<double> tokens, const SizesOfTrace& sizes) {
  for (double& each : tokens) each /= *sizes.most_tokens;
  return LoadOf(tokens, sizes.rows);
}

absl::Status ReadIterations(const std::string& path, const SizesOfTrace& sizes, std::vector<Load>* found) {
  absl::StatusOr<std::optional<JsonObject>> read = ReadObject(path);
  if (!read.ok() || !read->has_value()) return read.status();
  for (std::vector<double>& tokens : (*read)->Lists("iterations")) {
    found->push_back(LoadOfTokens(std::move(tokens), sizes));
  }
  return (*read)->status().ok() ? absl::OkStatus()
                                : Expected(path, "the tokens of iterations", (*read)->Json("iterations"));
}

void TakeFree(const SizesOfTrace& sizes, JsonObject* read, std::vector<Timed>* found) {
  const std::vector<double> seconds = read->Numbers("seconds");
  const std::vector<std::vector<double>> tokens = read->Lists("tokens");
  for (std::size_t i = seconds.size() / 2; i < std::min(seconds.size(), tokens.size()); ++i) {
    if (sizes.most_tokens.has_value() && !tokens[i].empty()) {
      found->push_back({LoadOfTokens(tokens[i], sizes), seconds[i]});
    } else {
      const auto count = static_cast<std::size_t>(sizes.micro_batches);
      found->push_back({LoadOf(std::vector<double>(count, sizes.size)), seconds[i]});
    }
  }
}

std::optional<WatchedStep> StepOf(const SizesOfTrace& sizes, JsonObject* read) {
  const std::vector<double> tokens = read->Numbers("tokens");
  const std::vector<std::string> names = read->Texts("kernels");
  WatchedStep step{LoadOfTokens(tokens, sizes), {}, {}};
  for (JsonObject& part : read->Objects("parts")) {
    step.seconds.push_back(part.Number("seconds", -1));
    KernelTimes& busy = step.busy.emplace_back();
    JsonObject kernels = part.Object("busy");
    for (const std::string& key : kernels.Keys()) {
      const std::vector<double> time = kernels.Numbers(key);
      std::size_t name = 0;
      if (time.size() != 2 || !absl::SimpleAtoi(key, &name) || name >= names.size()) return std::nullopt;
      busy[names[name]] = {time[0], time[1]};
    }
    if (step.seconds.back() < 0 || !part.status().ok() || !kernels.status().ok()) return std::nullopt;
  }
  if (!read->Has("tokens") || step.seconds.empty() || !read->status().ok()) return std::nullopt;
  return step;
}

absl::StatusOr<std::vector<WatchedStep>> ReadWatched(const std::string& path, const SizesOfTrace& sizes) {
  absl::StatusOr<std::optional<JsonObject>> read = ReadObject(path);
  if (!read.ok()) return read.status();
  std::vector<WatchedStep> found;
  if (!read->has_value()) return found;
  for (JsonObject& each : (*read)->Objects("device")) {
    std::optional<WatchedStep> step = StepOf(sizes, &each);
    if (!step.has_value()) return Expected(path, "what the device did in a step", (*read)->Json("device"));
    found.push_back(*std::move(step));
  }
  return found;
}

// For other ranks of the run, whose files lie next to the trace's.
std::vector<std::string> OtherRanks(const std::string& own) {
  static const std::regex name(R"(rank.*\.steps\.json)");
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path(own).parent_path(), ignored)) {
    const std::string path = entry.path().string();
    if (path != own && std::regex_match(entry.path().filename().string(), name)) found.push_back(path);
  }
  std::sort(found.begin(), found.end());
  return found;
}

absl::Status TakeWatched(const std::string& path, const SizesOfTrace& sizes, std::vector<WatchedStep>* watched) {
  const absl::StatusOr<std::vector<WatchedStep>> own = ReadWatched(path, sizes);
  if (!own.ok()) return own.status();
  std::vector<std::vector<WatchedStep>> others(own->size());
  for (const std::string& other : own->empty() ? std::vector<std::string>{} : OtherRanks(path)) {
    const absl::StatusOr<std::vector<WatchedStep>> found = ReadWatched(other, sizes);
    if (!found.ok()) return found.status();
    for (std::size_t i = 0; i < std::min(others.size(), found->size()); ++i) others[i].push_back((*found)[i]);
  }
  for (std::size_t i = 0; i < own->size(); ++i) watched->push_back((*own)[i].Least(others[i]));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TracedSteps>> ReadBoth(const RunFiles& files, const std::optional<double>& most,
                                                  double rows) {
  std::vector<TracedSteps> found;
  for (const bool second : {false, true}) {
    if (second && files.beside.empty()) break;
    const SizesOfTrace sizes{most, second ? rows : 1, second ? files.ratio : 1, files.micro_batches};
    absl::StatusOr<TracedSteps> steps = ReadTracedSteps(second ? files.beside : files.trace, sizes);
    if (!steps.ok()) return steps.status();
    found.push_back(*std::move(steps));
  }
  return found;
}

}  // namespace

std::vector<WatchedStep> WatchedIn(const std::vector<TracedSteps>& traces) {
  std::vector<WatchedStep> all;
  for (const TracedSteps& each : traces) all.insert(all.end(), each.watched.begin(), each.watched.end());
  return all;
}

absl::StatusOr<StepsOfRun> ReadStepsOfRun(const RunFiles& files) {
  const absl::StatusOr<std::optional<double>> most = ReadMostTokens(files.trace);
  if (!most.ok()) return most.status();
  absl::StatusOr<std::vector<TracedSteps>> traces = ReadBoth(files, *most, files.rows);
  if (!traces.ok()) return traces.status();
  StepsOfRun found;
  if (files.packed) {
    absl::StatusOr<std::vector<TracedSteps>> as_one = ReadBoth(files, *most, 1);
    if (!as_one.ok()) return as_one.status();
    found.together = AreTogether(WatchedIn(*as_one), WatchedIn(*traces));
    if (found.together) traces = std::move(as_one);
  }
  found.traces = *std::move(traces);
  double size = 0;
  double count = 0;
  for (const Timed& step : found.traces.front().free) {
    size += step.load.size;
    count += step.load.count;
  }
  if (most->has_value() && count > 0) found.usual = size / count;
  return found;
}

absl::StatusOr<std::optional<double>> ReadMostTokens(const std::string& trace) {
  absl::StatusOr<std::optional<JsonObject>> read = ReadObject(PathBeside(trace, ".tokens.json"));
  if (!read.ok()) return read.status();
  if (!read->has_value()) return std::nullopt;
  const std::vector<double> most = (*read)->Numbers("most");
  if (most.empty()) return std::nullopt;
  return std::optional<double>(*std::max_element(most.begin(), most.end()));
}

absl::StatusOr<TracedSteps> ReadTracedSteps(const std::string& trace, const SizesOfTrace& sizes) {
  TracedSteps found;
  const std::string steps = PathBeside(trace, ".steps.json");
  absl::StatusOr<std::optional<JsonObject>> read = ReadObject(steps);
  if (!read.ok()) return read.status();
  if (read->has_value()) TakeFree(sizes, &**read, &found.free);
  if (!sizes.most_tokens.has_value()) return found;
  absl::Status status = ReadIterations(PathBeside(trace, ".tokens.json"), sizes, &found.iterations);
  if (status.ok() && read->has_value()) status = TakeWatched(steps, sizes, &found.watched);
  if (!status.ok()) return status;
  return found;
}

}  // namespace stalloc::planner
