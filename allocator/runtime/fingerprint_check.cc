#include "allocator/runtime/fingerprint_check.h"

#include <algorithm>
#include <string_view>

namespace stalloc {
namespace {

std::string Differ(std::string_view what, std::string_view plan, std::string_view run) {
  return std::string(what).append(": plan ").append(plan).append(", this run ").append(run);
}

// "2.11.0+cu130" is "2.11".
std::string_view MajorMinor(std::string_view version) {
  const std::size_t first = version.find('.');
  if (first == std::string_view::npos) return version;
  std::size_t end = first + 1;
  while (end < version.size() && version[end] >= '0' && version[end] <= '9') ++end;
  return version.substr(0, end);
}

bool MemoryDiffers(Bytes left, Bytes right) {
  const Bytes larger = std::max(left, right);
  return larger - std::min(left, right) > larger / 50;
}

std::string DeviceName(DeviceIndex device) {
  return device == kCpuDevice ? std::string("cpu") : std::string("cuda:").append(std::to_string(device));
}

std::string_view BaseName(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// The program that a command line runs: its first Python file, its -m module, else the executable.
std::string_view ScriptOf(const std::vector<std::string>& command_line) {
  for (std::size_t i = 1; i < command_line.size(); ++i) {
    const std::string_view argument = command_line[i];
    if (argument.ends_with(".py")) return BaseName(argument);
    if (argument == "-m" && i + 1 < command_line.size() && command_line[i + 1] != "stalloc") return command_line[i + 1];
  }
  return command_line.empty() ? std::string_view() : BaseName(command_line[0]);
}

}  // namespace

std::vector<std::string> Differences(const Fingerprint& plan, const Fingerprint& run) {
  std::vector<std::string> found;
  if (plan.world_size != 0 && run.world_size != 0) {
    if (plan.rank != run.rank) found.push_back(Differ("rank", std::to_string(plan.rank), std::to_string(run.rank)));
    if (plan.world_size != run.world_size) {
      found.push_back(Differ("world size", std::to_string(plan.world_size), std::to_string(run.world_size)));
    }
  }
  const auto both = [](const std::string& left, const std::string& right) { return !left.empty() && !right.empty(); };
  if (both(plan.torch_version, run.torch_version) && MajorMinor(plan.torch_version) != MajorMinor(run.torch_version)) {
    found.push_back(Differ("torch", plan.torch_version, run.torch_version));
  }
  if (both(plan.device_name, run.device_name) && plan.device_name != run.device_name) {
    found.push_back(Differ("device", plan.device_name, run.device_name));
  }
  const bool gpus = plan.device_name != "cpu" && run.device_name != "cpu";
  if (gpus && plan.device_bytes != 0 && run.device_bytes != 0 && MemoryDiffers(plan.device_bytes, run.device_bytes)) {
    found.push_back(
        Differ("device memory, bytes", std::to_string(plan.device_bytes), std::to_string(run.device_bytes)));
  }
  return found;
}

std::string DeviceDifference(const Plan& plan, DeviceIndex device) {
  std::string planned;
  for (const DevicePlan& one : plan.devices) {
    if (one.device == device) return {};
    planned.append(planned.empty() ? "" : ", ").append(DeviceName(one.device));
  }
  return Differ("device", planned.empty() ? "none" : planned, DeviceName(device));
}

std::string ScriptDifference(const Fingerprint& plan, const Fingerprint& run) {
  const std::string_view planned = ScriptOf(plan.command_line);
  const std::string_view running = ScriptOf(run.command_line);
  if (planned.empty() || running.empty() || planned == running) return {};
  return Differ("script", planned, running);
}

std::string Join(const std::vector<std::string>& parts) {
  std::string joined;
  for (const std::string& part : parts) joined.append(joined.empty() ? "" : "; ").append(part);
  return joined;
}

}  // namespace stalloc
