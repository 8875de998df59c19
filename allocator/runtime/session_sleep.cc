// Sleep and wake of a session's devices.
#include <utility>

#include "allocator/runtime/session.h"

namespace stalloc {
namespace {

constexpr DeviceIndex kEndOfDevices = 256;

// Those of the session that have an arena; the one that is named in any case.
Result<std::vector<DeviceRuntime*>> DevicesOf(const Session& session, std::optional<DeviceIndex> named) {
  if (session.config().mode == Mode::kTorch) {
    return Error{"STALLOC_MODE=Torch has no arena, so nothing can sleep"};
  }
  std::vector<DeviceRuntime*> devices;
  DeviceRuntime* without_arena = nullptr;
  for (DeviceIndex index = kCpuDevice; index < kEndOfDevices; ++index) {
    DeviceRuntime* const device = session.Device(index);
    if (device == nullptr || (named.has_value() && *named != index)) continue;
    if (named.has_value() || !device->spaces().empty()) devices.push_back(device);
    without_arena = device;
  }
  if (devices.empty() && without_arena != nullptr) devices.push_back(without_arena);  // it says why
  if (!devices.empty()) return devices;
  return Error{named.has_value() ? "nothing was allocated on device " + std::to_string(*named)
                                 : "nothing was allocated yet, so there is no arena"};
}

}  // namespace

Result<std::vector<SleepFigures>> Session::Sleep(std::optional<DeviceIndex> device, const SleepOrder& order) {
  Result<std::vector<DeviceRuntime*>> devices = DevicesOf(*this, device);
  if (!devices.ok()) return Error{devices.error()};
  std::vector<SleepFigures> all;
  for (DeviceRuntime* const runtime : devices.value()) {
    Result<SleepFigures> figures = runtime->Sleep(order);
    if (figures.ok()) {
      all.push_back(figures.value());
      continue;
    }
    std::string why = figures.error();
    for (std::size_t slept = 0; slept < all.size(); ++slept) {
      const Result<SleepFigures> woken = devices.value()[slept]->Wake(order.tags);
      if (!woken.ok()) why += "; " + woken.error();
    }
    return Error{why};
  }
  return all;
}

Result<std::vector<SleepFigures>> Session::Wake(std::optional<DeviceIndex> device, const TagNames& tags) {
  Result<std::vector<DeviceRuntime*>> devices = DevicesOf(*this, device);
  if (!devices.ok()) return Error{devices.error()};
  std::vector<SleepFigures> all;
  std::string why;
  for (DeviceRuntime* const runtime : devices.value()) {
    const Result<SleepFigures> figures = runtime->Wake(tags);
    if (figures.ok()) all.push_back(figures.value());
    if (!figures.ok()) why += (why.empty() ? "" : "; ") + figures.error();
  }
  if (!why.empty()) return Error{why};
  return all;
}

Status Session::ReadAsleep(const void* pointer, Bytes bytes, void* to) const {
  for (DeviceIndex index = kCpuDevice; index < kEndOfDevices; ++index) {
    const DeviceRuntime* const device = Device(index);
    if (device != nullptr && device->SpaceOf(pointer) != nullptr) return device->ReadAsleep(pointer, bytes, to);
  }
  return Error{"no arena has that address"};
}

Status Session::ReserveHostPool(std::optional<DeviceIndex> device, Bytes bytes) {
  Result<std::vector<DeviceRuntime*>> devices = DevicesOf(*this, device);
  if (!devices.ok()) return Error{devices.error()};
  for (DeviceRuntime* const runtime : devices.value()) {
    if (Status reserved = runtime->ReserveHostPool(bytes); !reserved.ok()) return reserved;
  }
  return Ok{};
}

Bytes Session::ReleaseHostPools() {
  Bytes bytes = 0;
  for (DeviceIndex index = kCpuDevice; index < kEndOfDevices; ++index) {
    if (DeviceRuntime* const device = Device(index); device != nullptr) bytes += device->ReleaseHostPool();
  }
  return bytes;
}

}  // namespace stalloc
